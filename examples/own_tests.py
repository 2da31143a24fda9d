"""Tests of a program that uses Raptor, with `raptor.testing`: no files, no waiting.

    python examples/own_tests.py        (or: pytest examples/own_tests.py)

A World is a whole node in virtual time; `inline` runs what is put at once; `run` runs one service once.
"""

import raptor.testing
from raptor import Context, service
from raptor.testing import World, in_virtual_time, inline


@service(queue="mail")
async def send_email(to: str, subject: str) -> str:
    return f"sent {subject!r} to {to}"


@service
async def sign_up(name: str, ctx: Context) -> None:
    await ctx.put(send_email, {"to": name, "subject": "welcome"}, in_="30m")


def register(name: str) -> None:
    """Code of the program itself: a web view, say."""
    sign_up.put(name=name)


@in_virtual_time
async def test_a_welcome_is_sent_after_half_an_hour() -> None:
    async with World(services=[sign_up, send_email]) as world:
        await world.put(sign_up, {"name": "ann"})
        await world.run_until_idle()
        world.assert_put("send_email", {"to": "ann"}, in_="30m")
        await world.advance("30m")
        assert len(await world.tasks(service="send_email", state="done")) == 1


def test_registering_signs_up() -> None:
    with inline([sign_up, send_email]) as puts:
        register("bob")
        puts.assert_put("send_email", {"to": "bob", "subject": "welcome"})


def test_an_email_says_what_was_sent() -> None:
    result = raptor.testing.run(send_email, {"to": "cy", "subject": "hello"})
    assert result.value == "sent 'hello' to cy"


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name.removeprefix("test_").replace("_", " "))
