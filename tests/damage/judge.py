"""What becomes of a harmed directory: refused with advice, repaired with a report, told by a deep look, or harmless."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from raptor.clock import SystemClock
from raptor.errors import RefusedState
from raptor.state.home import Home
from raptor.state.repair import Report, repair
from raptor.task import Task
from tests.damage.homes import Case
from tests.powercut.records import Records, everything
from tests.system.states import opened

PATIENCE_S = 120  # of the clock: a busy machine is no surprise

HARMLESS, REFUSED, REPAIRED, TOLD = "harmless", "refused", "repaired", "told by a deep look"


class Outcome(NamedTuple):
    what: str
    wrong: list[str]


class Hanging(BaseException):
    """It takes longer than anybody waits."""


async def outcome(case: Case, home: Path) -> Outcome:
    """Start on it as an owner does; where that is refused, repair it, and start again."""
    try:
        with patience():
            return await _outcome(case, home)
    except Hanging:
        return Outcome("hanging", ["it hangs"])
    except Exception as error:
        return Outcome("raised", [f"{type(error).__name__}: {error}"])


async def _outcome(case: Case, home: Path) -> Outcome:
    try:
        found, next_id = await _started(home)
    except RefusedState as refused:
        return await _repaired(case, home, refused)
    if found != case.records:
        return _told(case, home, found)
    if next_id <= case.last_id:
        return Outcome("changed", [f"the id {next_id} is given again"])
    return Outcome(HARMLESS, [])


def _told(case: Case, home: Path, found: Records) -> Outcome:
    try:
        Home.read(home).examine(deep=True)
    except RefusedState as refused:
        return Outcome(TOLD, _without_advice(refused))
    return Outcome("changed", [f"started with other records: {difference(case.records, found)}"])


async def _repaired(case: Case, home: Path, refused: RefusedState) -> Outcome:
    wrong = _without_advice(refused)
    try:
        report = repair(home, SystemClock())
    except RefusedState as again:
        wrong += _without_advice(again)
        if "raptor state repair" in str(refused):
            wrong.append(f"repair is advised, and refuses too: {again}")
        return Outcome(REFUSED, wrong)
    found, next_id = await _started(home)
    wrong += _in_silence(case, report, found)
    if next_id <= max(case.last_id if not report.lost else 0, 0):
        wrong.append(f"the id {next_id} is given again after a repair")
    return Outcome(REPAIRED, wrong)


def _in_silence(case: Case, report: Report, found: Records) -> list[str]:
    if found == case.records:
        return []
    if not report.lost:
        return [f"repaired, nothing told as lost, and there is: {difference(case.records, found)}"]
    invented = sorted(found.keys() - case.records.keys() - case.once)
    return [f"repaired with records that nobody wrote: {invented}"] if invented else []


async def _started(home: Path) -> tuple[Records, int]:
    """Everything that is there, and the id that the next task gets."""
    async with opened(home, SystemClock()) as store:
        found = await everything(store)
        ((id, _),) = await store.put([Task(service="new", due=0.0, data="new")], now=0.0)
        await store.cancel([id], now=0.0, reason="")
        await store.drop([id])
        return found, id


def _without_advice(refused: RefusedState) -> list[str]:
    return [] if refused.advice else [f"refused without advice: {refused}"]


def different(expected: Records, found: Records) -> list[str]:
    return sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))


def difference(expected: Records, found: Records) -> str:
    def shown(key: str) -> str:
        was, now = expected.get(key), found.get(key)
        if isinstance(was, dict) and isinstance(now, dict):
            return f"{key}: " + ", ".join(
                f"{n} {was[n]!r} -> {now.get(n)!r}"[:200] for n in was if was[n] != now.get(n)
            )
        return f"{key} {'is there' if was is None else 'is missing'}"

    keys = different(expected, found)
    return "; ".join(map(shown, keys[:5])) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")


@contextmanager
def patience() -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
