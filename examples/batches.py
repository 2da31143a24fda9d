"""A batch handler takes many tasks in one call: for work that is cheaper in bulk, such as inserting rows.

    python examples/batches.py

It may answer with one value for each task. A batch that fails is tried again task by task, so that a bad one is alone.
"""

import asyncio

from raptor import Node, service


@service(batch=100, max_attempts=2)
async def insert(numbers: list[int]) -> list[str]:
    if 13 in numbers and len(numbers) > 1:
        print(f"{len(numbers)} rows: refused, 13 is among them")
        raise ValueError("13 is not allowed")
    if numbers == [13]:
        raise ValueError("13 is not allowed")
    print(f"{len(numbers)} rows at once" if len(numbers) > 1 else "1 row alone")
    return [f"row {number}" for number in numbers]


async def main() -> None:
    async with Node(store="memory:", services=[insert]) as node:
        ids = await node.put_many(insert, list(range(20, 50)))
        print((await node.call("wait", id=ids[-1]))["output"])

        for id in await node.put_many(insert, [12, 13, 14]):
            task = await node.call("wait", id=id)
            print(f"{task['data']}: {task['state']}")


if __name__ == "__main__":
    asyncio.run(main())
