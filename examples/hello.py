"""The least: a scheduler inside a program. Two services run every 200 ms, until each has run three times.

    python examples/hello.py [STATE DIRECTORY]

What runs is remembered in the state directory: start it again with the same one, and nothing runs before its time.
"""

import asyncio
import sys
import tempfile

from raptor import Node, service

greeted = asyncio.Semaphore(0)


@service(every="200ms")
def hello():
    print("hello", flush=True)


@service(every="200ms")
async def world():
    print("world", flush=True)
    greeted.release()


async def main(home: str) -> None:
    async with Node(home, services=[hello, world]) as node:
        await node.schedule("main", ["hello", "world"])
        await node.start("main")  # no interval: it wakes when something is due
        for _ in range(3):
            await greeted.acquire()
    print("stopped, in order")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"{folder}/state"))
