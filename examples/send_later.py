"""Tasks: put one now, one for later, one that is wanted only once, and wait for what they return.

    python examples/send_later.py [STATE DIRECTORY]

A task is stored before `put` returns. End the program before the later one is due, start it again with the same
directory, and it is sent then.
"""

import asyncio
import sys
import tempfile

from raptor import Node, service


@service(queue="mail")
async def send_email(to: str, subject: str = "hello") -> str:
    print(f"sending {subject!r} to {to}", flush=True)
    return f"sent to {to}"


async def main(home: str) -> None:
    async with Node(home, services=[send_email]) as node:
        now = await node.put(send_email, {"to": "ann@example.com"})
        print(await now.result())

        later = await node.put(send_email, {"to": "bob@example.com"}, in_="1s")

        # One pending task for each key: the second put gives the first task.
        first = await node.put(send_email, {"to": "cy@example.com", "subject": "welcome"}, in_="500ms", key="cy")
        second = await node.put(send_email, {"to": "cy@example.com", "subject": "welcome"}, in_="500ms", key="cy")
        print("the same task:", first.id == second.id and not second.new)

        await send_email.put(to="dee@example.com")  # without the node at hand
        print(await first.result())
        print(await later.result())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"{folder}/state"))
