"""One history: nodes on a new store, tortured for a while, left in peace, stopped, and what they left read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from raptor.clock import Clock
from raptor.service import Service, service_of
from raptor.testing.checker.history import Bounds, Command, Declared, Fault, History, Image, Life, Line, Unrecorded
from raptor.testing.torture import own
from raptor.testing.torture.client import Client
from raptor.testing.torture.lives import Lived, Lives
from raptor.testing.torture.looking import Eye, FilesEye, PostgresEye
from raptor.testing.torture.nemesis import Nemesis, Server
from raptor.testing.torture.node import LANES, NOT_RECORDED, UNRECORDED, Place, settings
from raptor.testing.torture.own import Own
from raptor.testing.torture.plan import Plan
from raptor.testing.torture.pulse import Pulse, Stalls
from raptor.testing.torture.services import COMMANDS, FAULTS, LEDGER, SERVICES
from raptor.testing.torture.writing import count, written

replace = msgspec.structs.replace

GRACE_S = 2.0
DRAIN_S = 90.0  # for what is left, once nobody disturbs
CALM_S = 1.5  # of undisturbed work in the end
OWN_EVERY_S = 0.1  # between two tasks of a user's services

Hear = Callable[[Counter[str]], None]


class Round:
    """`store` is the address of an empty store that nodes may share; None: files in the folder."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        clock: Clock,
        *,
        store: str | None = None,
        server: Server | None = None,
        services: Own | None = None,
    ) -> None:
        self.complaints: list[str] = []
        self._plan = plan
        self._folder = folder
        self._clock = clock
        self._server = server
        self._ledger, self._commands, self._faults = (folder / name for name in ("ledger", "commands", "faults"))
        homes = [folder / f"home{number}" for number in range(plan.nodes)]
        self._store = store
        self._eye: Eye = FilesEye(homes[0]) if store is None else PostgresEye(store)
        self._places = [
            Place(
                home=str(home), commands=str(self._commands), store=store, grace_s=GRACE_S, own=services,
                lease=None if plan.lease_s is None else f"{plan.lease_s}s",
            )
            for home in homes
        ]  # fmt: skip
        self._services = _services(self._places[0])
        self._stalls = Stalls(folder / "stalls")
        self._images: list[Image] = []
        self._looked = 0.0

    async def run(self, enough: Callable[[], bool], hear: Hear) -> History:
        """`hear` is told how far it has come, now and then."""
        (self._folder / "logs").mkdir(parents=True)
        env = {LEDGER: str(self._ledger), COMMANDS: str(self._commands), FAULTS: str(self._faults)}
        async with Lives(self._folder, env, self._plan.rights_s) as lives:
            lives.begin(Pulse(stalls=str(self._folder / "stalls")))
            nemesis = Nemesis(self._plan, lives, self._places, self._clock, self._look, self._server, self._stalls.met)
            client = self._client(lives)
            telling = asyncio.ensure_future(self._tell(nemesis, hear))
            try:
                await nemesis.torment(enough)
                await self._calm(client, nemesis)
                await nemesis.stop()
            finally:
                telling.cancel()
            hear(self._counts(nemesis))
            self.complaints += nemesis.complaints
            return await self._history(lives.all, nemesis.faults)

    def _client(self, lives: Lives) -> Lived | None:
        homes = [place.home for place in self._places]
        client = Client(homes=homes, commands=str(self._commands), seed=self._plan.seed)
        if self._places[0].own is None:
            return lives.begin(client)
        names = own.alone(self._services)
        return lives.begin(replace(client, services=names, every_s=OWN_EVERY_S)) if names else None

    async def _calm(self, client: Lived | None, nemesis: Nemesis) -> None:
        (self._folder / "enough").touch()
        if client is not None:
            await client.over.wait()
        end = self._clock.monotonic() + (0.0 if nemesis.complaints else DRAIN_S)
        while await self._eye.pending() and self._clock.monotonic() < end:
            await self._clock.sleep(0.1)
        await self._clock.sleep(CALM_S)

    async def _look(self, lived: Lived) -> None:
        """What the store has after a kill. The ledger is counted last: whatever comes after that is later."""
        at = self._clock.now()
        seen = await self._eye.look(self._looked - 1.0)
        if seen is not None:
            self._looked = at
            self._images.append(Image(at=at, seen=count(self._ledger), life=lived.life, **seen._asdict()))

    async def _tell(self, nemesis: Nemesis, hear: Hear) -> None:
        while True:
            await self._clock.sleep(0.5)
            hear(self._counts(nemesis))

    def _counts(self, nemesis: Nemesis) -> Counter[str]:
        runs, acks = (file.read_bytes() if file.exists() else b"" for file in (self._ledger, self._commands))
        return Counter(nemesis.counts) + Counter(
            runs=runs.count(b'"what":"start"'), acks=acks.count(b'"acked":'), standstills=len(self._stalls.faults)
        )

    async def _history(self, lived: Sequence[Lived], faults: Sequence[Fault]) -> History:
        batches = {service.name for service in self._services if service.batch is not None}
        dump = await self._eye.dump(service.name for service in self._services)
        return History(
            services=tuple(map(Declared.of, self._services)),
            lives=tuple(life_of(one, one.work) for one in lived if isinstance(one.work, Place)),
            faults=(*faults, *written(self._faults, Fault), *self._stalls.faults),
            commands=tuple(one for one in written(self._commands, Command) if one.service not in batches),
            lines=tuple(one for one in written(self._ledger, Line) if one.task is None or one.service not in batches),
            unrecorded=tuple(written(self._folder / UNRECORDED, Unrecorded)),
            images=tuple(self._images),
            # One line stands for all tasks of a batch: too little to judge them by.
            dump=replace(dump, tasks=tuple(task for task in dump.tasks if task.service not in batches)),
            bounds=Bounds(lanes=LANES, shared=self._store is not None),
        )


def _services(place: Place) -> list[Service]:
    if place.own is not None:
        return list(settings(place).catalogue().values())
    return [found for given in SERVICES if (found := given if isinstance(given, Service) else service_of(given))]


def life_of(lived: Lived, place: Place) -> Life:
    return Life(
        life=lived.life, node=Path(place.home).name, at=lived.began, ended=lived.ended,
        killed=lived.code not in (0, NOT_RECORDED), stopping=lived.stopping, pid=lived.pid,
    )  # fmt: skip
