"""The services of `make run`: one that always works, one that fails now and then, one that takes its time."""

import asyncio
import random

from raptor import service


@service(every="5s")
def hello():
    """A plain function is called in a thread."""
    return "hello, world"


@service(every="15s", max_attempts=3)
def weather():
    """It fails every other time, and is tried again after 1 s, then 2 s: see the lines with an arrow."""
    if random.random() < 0.5:
        raise ConnectionError("the weather station does not answer")
    return f"{random.randint(-5, 30)} degrees"


@service(every="20s", timeout="1m")
async def report(ctx):
    """An async function with the context of its run. Kill -9 the program while it works: it runs again."""
    for page in range(1, 4):
        ctx.log.info("writing page %s of 3", page)
        ctx.progress(page, 3)
        await asyncio.sleep(1)
    return "3 pages"
