"""The live tree, as data and in print."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console

from raptor.childspec import Backoff
from raptor.clock import Clock
from raptor.dynamic import DynamicSupervisor
from raptor.ref import Ref
from raptor.runtime import Runtime
from raptor.supervisor import Supervisor, start_child, terminate_child
from raptor.tree import Branch, tree
from tests.actors.kids import Diary, Kid, begin, end, kid, kids, living


async def top(clock: Clock, children: Any, **flags: Any) -> Ref:
    return await begin(Runtime(clock, log=False), Supervisor, children, name="top", **flags)


async def busy(_: Kid) -> None:
    await asyncio.get_running_loop().create_future()


def printed(branch: Branch, *, width: int = 200, colour: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=colour, color_system="standard" if colour else None).print(branch)
    return out.getvalue()


async def test_a_tree_shows_everybody_below_in_the_order_of_starting(clock: Clock) -> None:
    diary = Diary()
    inner = kid(diary, "inner", start=Supervisor, args=(kids(diary, "xy"),))
    sup = await top(clock, [kid(diary, "a"), inner, kid(diary, "b", name="bob")])
    branch = tree(sup)
    assert [found.name for found in branch.walk()] == ["top", "a", "inner", "x", "y", "bob"]
    assert [found.kind for found in branch.walk()] == ["Supervisor", "Kid", "Supervisor", "Kid", "Kid", "Kid"]
    assert {found.state for found in branch.walk()} == {"running"}


async def test_a_tree_shows_uptime_restarts_messages_and_what_is_busy(clock: Clock) -> None:
    diary = Diary()
    sup = await top(clock, kids(diary, "abc"), intensity=9)
    await clock.sleep(10)
    await end((await living(sup))["b"], "crash")
    found = await living(sup)
    await clock.sleep(5)
    found["c"].cast(busy)
    await clock.sleep(2)
    for _ in range(3):
        found["c"].cast("waiting")
    assert [asdict(branch) for branch in tree(sup).children] == [
        facts("a", uptime_s=17.0),
        facts("b", uptime_s=7.0, restarts=1),
        facts("c", uptime_s=17.0, state="busy", busy_s=2.0, mailbox=3),
    ]
    sup.kill()
    await sup.wait()


def facts(name: str, **others: Any) -> dict[str, Any]:
    plain = {"kind": "Kid", "state": "running", "restarts": 0, "mailbox": 0, "busy_s": None, "children": ()}
    return {"name": name, **plain, **others}


async def test_a_tree_shows_who_is_stopped_and_who_is_being_restarted(clock: Clock) -> None:
    diary = Diary()
    sup = await top(clock, kids(diary, "abc"), backoff=Backoff(initial_s=60))
    await terminate_child(sup, "a")
    await end((await living_of(sup, "b")), "crash")
    await clock.sleep(1)
    branch = tree(sup)
    assert [(found.name, found.state, found.uptime_s) for found in branch.children] == [
        ("a", "stopped", None),
        ("b", "restarting", None),
        ("c", "running", 1.0),
    ]


async def living_of(sup: Ref, id: str) -> Ref:
    child = sup.actor.children[id].ref  # type: ignore[union-attr]
    assert isinstance(child, Ref)
    return child


async def test_a_tree_asks_nobody_so_a_stuck_supervisor_is_shown_like_any_other(clock: Clock) -> None:
    diary = Diary()
    sup = await top(clock, kids(diary, "a"))
    diary.will("hangs", "hang")
    starting = asyncio.create_task(start_child(sup, kid(diary, "hangs", start_timeout_s=None)))
    await clock.sleep(9)
    branch = tree(sup)
    assert (branch.state, branch.busy_s) == ("busy", 9.0)
    assert [found.name for found in branch.children] == ["a"]
    sup.kill()
    await asyncio.gather(starting, return_exceptions=True)


async def test_the_tree_of_the_dead_is_one_branch(clock: Clock) -> None:
    sup = await top(clock, kids(Diary(), "a"))
    await sup.stop()
    assert tree(sup) == Branch("top", "Supervisor", "stopped", 0, None, 0, None, ())


async def test_a_plain_actor_is_a_tree_too_named_by_what_it_is(clock: Clock) -> None:
    ref = await begin(Runtime(clock), Kid, Diary(), "k")
    assert (tree(ref).name, tree(ref).children) == ("<Kid #1>", ())


async def test_the_children_of_a_dynamic_supervisor_are_shown(clock: Clock) -> None:
    sup = await begin(Runtime(clock), DynamicSupervisor, kid(Diary(), "t"))
    for _ in range(3):
        await start_child(sup)
    assert len({branch.name for branch in tree(sup).children}) == 3


async def test_a_tree_is_plain_data(clock: Clock) -> None:
    sup = await top(clock, [kid(Diary(), ("a", 1)), kid(Diary(), None), kid(Diary(), 7)])
    data = json.loads(json.dumps(asdict(tree(sup))))
    assert [child["name"] for child in data["children"]] == ["('a', 1)", "None", "7"]


async def test_a_printed_tree_has_a_line_for_each_with_its_facts(clock: Clock) -> None:
    diary = Diary()
    sup = await top(clock, kids(diary, "ab"), intensity=9)
    for _ in range(2):
        await end((await living(sup))["a"], "crash")
    await clock.sleep(1.5)
    (await living(sup))["b"].cast(busy)
    await clock.sleep(0.5)
    (await living(sup))["b"].cast("waiting")
    assert printed(tree(sup)).splitlines() == [
        "● top  Supervisor · running · up 2.0 s",
        "├── ● a  Kid · running · up 2.0 s · 2 restarts",
        "└── ● b  Kid · busy 0.5 s · up 2.0 s · 1 waiting",
    ]
    sup.kill()
    await sup.wait()


async def test_one_restart_is_not_plural(clock: Clock) -> None:
    sup = await top(clock, kids(Diary(), "a"))
    await end((await living(sup))["a"], "crash")
    await living(sup)
    assert " · 1 restart\n" in printed(tree(sup))


@pytest.mark.parametrize("name", ["[bold]", "[/bold]", "[red]fire[/red]", "[link=http://x]y[/link]", ":smile:", "[/]"])
@pytest.mark.parametrize("place", ["id", "name"])
async def test_markup_in_a_name_is_shown_as_it_is(clock: Clock, name: str, place: str) -> None:
    child = kid(Diary(), name) if place == "id" else kid(Diary(), "a", name=name)
    text = printed(tree(await top(clock, [child])))
    assert f"● {name}  Kid" in text


@pytest.mark.parametrize(
    "name",
    ["\x1b[31mred", "\x1b]0;title\x07", "a\x00b", "a\nb", "a\rb", "a\tb", "\x9b31m", "\u202eabc", "\u2028line", "\x7f"],
)
@pytest.mark.parametrize("place", ["id", "name"])
@pytest.mark.parametrize("colour", [False, True])
async def test_escape_codes_in_a_name_are_shown_and_not_obeyed(
    clock: Clock, name: str, place: str, colour: bool
) -> None:
    child = kid(Diary(), name) if place == "id" else kid(Diary(), "a", name=name)
    plain, evil = await top(clock, [kid(Diary(), "plain")]), await top(clock, [child])
    text = printed(tree(evil), colour=colour)
    for letter in name:
        assert letter.isprintable() or letter in "\n\x1b" or letter not in text
    assert text.count("\x1b") == printed(tree(plain), colour=colour).count("\x1b")
    assert len(text.split("\n")) == len(printed(tree(plain), colour=colour).split("\n"))
    assert "\\x" in text


async def test_names_in_any_script_are_shown(clock: Clock) -> None:
    text = printed(tree(await top(clock, [kid(Diary(), name) for name in ("日本", "żółw", "🦖", "a b")])))
    for name in ("日本", "żółw", "🦖", "a b"):
        assert f"● {name}  Kid" in text


async def test_a_name_longer_than_the_terminal_hurts_nothing(clock: Clock) -> None:
    sup = await top(clock, [kid(Diary(), "x" * 500)])
    assert printed(tree(sup), width=40).count("x") == 500


async def test_every_state_has_its_mark(clock: Clock) -> None:
    diary = Diary()
    sup = await top(clock, kids(diary, "rsb"), backoff=Backoff(initial_s=60))
    await terminate_child(sup, "s")
    await end(await living_of(sup, "r"), "crash")
    await clock.sleep(1)
    text = printed(tree(sup))
    assert "↻ r  Kid · restarting" in text
    assert "○ s  Kid · stopped" in text
    assert "● b  Kid · running" in text
