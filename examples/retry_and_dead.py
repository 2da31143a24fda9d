"""A task that fails: it is tried again after 1, 2, 4, ... seconds, is dead after its last try, and can be revived.

    python examples/retry_and_dead.py

The clock is virtual, so that nobody has to wait for the backoff.
"""

from raptor import Node, VirtualClock, service
from raptor.errors import TaskFailed

clock = VirtualClock()
began = clock.now()
shop_is_open = False


@service(max_attempts=3)
async def buy(what: str) -> str:
    print(f"{clock.now() - began:3.0f} s: trying to buy {what}")
    if not shop_is_open:
        raise ConnectionError("the shop is closed")
    return f"bought {what}"


async def main() -> None:
    global shop_is_open
    async with Node(store="memory:", services=[buy], clock=clock) as node:
        task = await node.put(buy, {"what": "bread"})
        try:
            await task.result()
        except TaskFailed as error:
            print(f"{error.state} ({error.reason})")

        # `raptor dead` lists them, `raptor retry` revives them.
        dead = (await node.call("tasks", state="dead"))["tasks"]
        print("dead:", [one["service"] for one in dead])
        shop_is_open = True
        await node.call("retry", ids=[task.id])
        print(await task.result())


if __name__ == "__main__":
    clock.run(main)
