"""What Raptor is measured against in Python: an actor of a task and an asyncio.Queue, and Pykka."""

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Protocol


class Peer(Protocol):
    """Anything that counts the messages it gets."""

    def cast(self, message: object) -> None: ...

    async def call(self, message: object) -> Any: ...


class QueueActor:
    """The least that can be called an actor: no names, no timeouts, no links, no reports."""

    def __init__(self) -> None:
        self.count = 0
        self.queue: asyncio.Queue[tuple[object, asyncio.Future[int] | None]] = asyncio.Queue()
        self.task = asyncio.create_task(self.serve())

    async def serve(self) -> None:
        while True:
            _, reply = await self.queue.get()
            self.count += 1
            if reply is not None:
                reply.set_result(self.count)

    def cast(self, message: object) -> None:
        self.queue.put_nowait((message, None))

    async def call(self, message: object) -> int:
        reply: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((message, reply))
        return await reply


class CrashingQueueActor(QueueActor):
    """Crashes at its first message; whoever wants another makes it when the task is done."""

    def __init__(self, crashing: Callable[[], None]) -> None:
        super().__init__()
        self.crashing = crashing

    async def serve(self) -> None:
        await self.queue.get()
        self.crashing()
        raise RuntimeError("crash")


class PykkaPeer:
    """A Pykka actor: a thread, kept on one core. Asking it blocks, but nothing else has work in its turn."""

    def __init__(self, core: int) -> None:
        import pykka

        class Counter(pykka.ThreadingActor):
            def on_start(self) -> None:
                os.sched_setaffinity(0, {core})  # of this thread
                self.count = 0

            def on_receive(self, message: object) -> int:
                self.count += 1
                return self.count

        self.ref = Counter.start()

    def cast(self, message: object) -> None:
        self.ref.tell(message)

    async def call(self, message: object) -> Any:
        return self.ref.ask(message)

    def stop(self) -> None:
        self.ref.stop()


def cores() -> list[int]:
    """Those this process may use."""
    return sorted(os.sched_getaffinity(0))


@contextmanager
def kept_on(core: int) -> Generator[None]:
    """Keep this thread on one core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    yield
    os.sched_setaffinity(0, allowed)
