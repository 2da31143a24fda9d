"""Raptor's actors of the benchmarks: they count the messages they get, as those of floors.py do."""

from raptor.actor import Actor, Caller


class Counter(Actor):
    """Plain handlers."""

    def init(self) -> None:
        self.count = 0

    def handle_call(self, message: object, caller: Caller) -> int:
        self.count += 1
        return self.count

    def handle_cast(self, message: object) -> None:
        self.count += 1


class AsyncCounter(Actor):
    """The same with `async` handlers, which wait for nothing."""

    def init(self) -> None:
        self.count = 0

    async def handle_call(self, message: object, caller: Caller) -> int:
        self.count += 1
        return self.count

    async def handle_cast(self, message: object) -> None:
        self.count += 1
