"""Targets: what comes in at the control socket, served in this process, and what a node answers to its client."""

from __future__ import annotations

import asyncio
import inspect
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec

from raptor import service
from raptor.client import Refused, read_answer
from raptor.clock import VirtualClock
from raptor.commands import COMMANDS, perform
from raptor.config import Config
from raptor.control import LARGEST, Control
from raptor.events import Events
from raptor.rows import Definition, Scheduled, ServiceTiming
from raptor.runners import RUNNERS
from raptor.site import Site
from raptor.state.memory import MemoryStore
from raptor.task import Run, Task
from raptor.timetable import Timetable
from raptor.turn import Logs
from raptor.workshop import Workshop
from tests.fuzz.draw import Draw
from tests.fuzz.target import Target, must

NOWHERE = Path("/nowhere")
NOW = 1_763_433_600.0


@service(every="1h")
async def ping(name: str = "x", times: int = 1) -> str:
    return name * min(times, 9)


class Writer:
    """As much of a StreamWriter as a conversation needs."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None: ...


class Runtime:
    def __init__(self, events: Events) -> None:
        self.events = events


class Bench:
    """A control that performs on a site of its own, new for each input; what is dear to make is shared."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._config = Config.load({"home": str(NOWHERE)}, environ={}, cwd=Path("/"), user_file=NOWHERE / "none")
        self._clock = VirtualClock(start=NOW)
        self._catalogue = self._config.catalogue([ping])
        self._runners = {kind: make(self._clock) for kind, make in RUNNERS.items()}

    def control(self) -> Control:
        site: list[Site] = []

        async def answer(name: str, params: dict[str, Any]) -> dict[str, Any]:
            if not site:
                site.append(await self._site())
            return await perform(site[0], name, params)

        made = Control.__new__(Control)
        made._perform = answer
        cast("Any", made).runtime = Runtime(Events(self._clock))
        return made

    async def _site(self) -> Site:
        store, events = MemoryStore(), Events(self._clock)
        definition = Definition(name="main", interval_s=60.0, services=(Scheduled(name="ping"),))
        row = ServiceTiming(next_due=NOW, slot=NOW - 3600, interval_seconds=3600.0, last_run_id="r")
        run = Run(id="r", service="ping", scheduler="main", planned=NOW, attempt=1, start=NOW, end=NOW)
        await store.save([("definitions", "main", definition), ("service_timing", "ping", row)])
        await store.record((), [run])
        await store.put([Task(service="ping", due=NOW + 5), Task(service="ping", due=NOW)], now=NOW)
        await store.cancel([2], now=NOW, reason="")
        timetable = Timetable(store, self._clock, events)
        await timetable.load()
        workshop = Workshop(timetable, self._runners, Logs(), self._catalogue, definitions={"main": definition})
        return Site(NOWHERE, self._clock, workshop, self._config)


@cache
def bench() -> Bench:
    return Bench()


@cache
def parameters(command: str) -> tuple[str, ...]:
    listed = list(inspect.signature(COMMANDS[command].load()).parameters)[1:]
    more = {
        "put": ("in_", "at", "every", "cron", "timezone", "queue", "priority", "key", "key_for", "active", "parent")
    }
    return (
        *listed,
        *more.get(command, ()),
        *(("paused", "rate", "lease", "concurrency") if command == "queue" else ()),
    )


def frame(data: bytes) -> None:
    """Any bytes as a conversation, or any values as the parameters of a command."""
    if data[:1] >= b"\x80":
        _ask(Draw(data[1:]))
    else:
        _send(data[1:])


def _send(data: bytes) -> None:
    here = bench()

    async def converse() -> bytes:
        reader = asyncio.StreamReader(limit=LARGEST, loop=here.loop)
        reader.feed_data(data)
        reader.feed_eof()
        writer = Writer()
        await here.control()._converse(reader, cast("asyncio.StreamWriter", writer))
        return writer.written

    written = here.loop.run_until_complete(converse())
    must(
        written.count(b"\n") == len(data.splitlines()) or b"\r" in data or len(data) > 100_000, "not one answer a line"
    )
    for line in written.splitlines():
        _judge(line + b"\n")


def _ask(draw: Draw) -> None:
    method = draw.pick((*COMMANDS, "", "no such"))
    known = parameters(method) if method in COMMANDS else ("name",)
    params: dict[str, Any] = {}
    for _ in range(draw.below(5)):
        name = draw.pick(known) if known and draw.below(16) else draw.text()
        params[name] = (
            draw.plain(2) if draw.below(3) else draw.pick(("ping", "main", "10s", 1, 2, [1], ["ping"], True, 5.0))
        )
    asked = _json({"jsonrpc": "2.0", "id": draw.pick((1, "x", None, 10**30)), "method": method, "params": params})
    if asked is not None:
        here = bench()
        _judge(here.loop.run_until_complete(here.control()._answer(asked)))


def _json(value: object) -> bytes | None:
    """JSON of whatever it is: msgspec's own encoder knows neither lone surrogates nor long numbers."""
    import json

    try:
        return json.dumps(value).encode()
    except ValueError:
        return None


def _judge(answer: bytes) -> None:
    must(answer.endswith(b"\n") and answer.count(b"\n") == 1, "an answer is one line")
    found = msgspec.json.decode(answer)
    must(found["jsonrpc"] == "2.0" and "id" in found and ("result" in found) != ("error" in found), f"answer {found}")
    if "error" in found:
        must(found["error"]["code"] != -32603, f"an internal error: {found['error']['message']}")
        must(isinstance(found["error"]["data"]["exit_code"], int), "no exit code")


def answer(data: bytes) -> None:
    try:
        must(isinstance(read_answer(data), dict), "an answer is an object")
    except Refused as error:
        must(isinstance(error.code, int) and isinstance(str(error), str), "a refusal has a code")


LINE = b'{"jsonrpc":"2.0","id":1,"method":"status","params":{}}\n'
WORDS = (b'"jsonrpc":"2.0"', b'"id":', b'"method":', b'"params":{', b'"result":', b'"error":', b'"code":-32000',
b'"message":""', b'"data":{"exit_code":2}', b"null", b"[" * 60, b"\\ud800", b"9" * 30, b"\n", b"status",
b"put")  # fmt: skip
TARGETS = (
    Target(
        "frame",
        frame,
        (
            b"\x00" + LINE, b"\x00" + LINE * 2,
            b'\x00{"method":"put","params":{"service":"ping","data":{"name":"a"}}}\n',
            b"\x80" + bytes(range(40)), b"\x90\x0f\x02\x05\x01\x02\x03",
            b'\x00{"id":99999999999999999999999,"method":"x"}\n',
            *(b"\x80" + bytes([n, 3, 1, 1, 2, 0, 1, 3, 5, 1, 2, 1]) for n in range(len(COMMANDS))),
        ),
        WORDS,
    ),
    Target(
        "answer",
        answer,
        (
            b'{"jsonrpc":"2.0","id":1,"result":{"v":1}}\n', b"",
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no","data":{"exit_code":4}}}\n',
        ),
        WORDS,
    ),
)  # fmt: skip
