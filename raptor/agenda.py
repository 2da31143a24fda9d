"""A scheduler's list of services: how each is timed, when to look at them next, and why some are not due."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import msgspec

from raptor.due import Check, Due, NotDue, decide, reached, rounded, skip
from raptor.rows import Definition, Scheduled, ServiceTiming
from raptor.service import Service
from raptor.timetable import BY_HAND, Timetable
from raptor.timing import Timing, has_timing, timing_of

REASONS = 20  # services whose reason for not being due is told at a check
LONG_S = 3600.0  # of a calendar's slots, which may be one a second
CATCH_UP_S = 1.0  # between two runs that make up for downtime


class Agenda:
    """What stands on the list, and the beat of the checks. It decides nothing that is written."""

    def __init__(
        self, definition: Definition, catalogue: Mapping[str, Service], timetable: Timetable, now: float
    ) -> None:
        self.definition = definition
        self.catalogue = catalogue
        self.check: Check | None = None  # the latest
        self.unclamped = True  # a row may lie in the future
        self._timetable = timetable
        self._up_since = rounded(now)
        self._tick = self._up_since  # the next planned check
        self._forget()

    def redefine(self, definition: Definition, now: float, *, look_now: bool) -> None:
        """A new list or interval: it holds from the next cycle on."""
        if look_now or definition.interval_s != self.definition.interval_s:
            self._tick = rounded(now)
        self.definition = definition
        self._forget()

    def replace_catalogue(self, catalogue: Mapping[str, Service]) -> None:
        self.catalogue = catalogue
        self._forget()

    def _forget(self) -> None:
        """What was worked out from the list and the catalogue holds no more."""
        self.unclamped = True
        self._known: dict[str, Scheduled] | None = None
        self._entries = {entry.name: entry for entry in self.definition.services}
        self._timings: dict[str, Timing | None] = {}
        self._decided: dict[str, tuple[Timing, ServiceTiming | None, Check, Due | NotDue]] = {}

    # When to look

    def next_check(self, now: float, *, caught_up: bool) -> tuple[float | None, bool]:
        """When to look next, and whether for retries only; `caught_up`: a whole cycle has been since the start."""
        if self.definition.paused or not self.definition.services:
            return None, False
        gates, names = self._timetable.gates, self.listed()
        away = {name for name in self._timetable.claims if name in names and self.is_held(name)}
        if self.definition.interval_s is None:
            away.update(self.definition.paused_services)
            # One that never ran is looked at at once, so that its plan is known to whoever comes after a crash.
            soonest = min((gates.get(name, now) for name in names if name not in away), default=None)
            return (None if soonest is None else rounded(max(soonest, self._spread(soonest)))), False
        tried = self._timetable.retries
        retries = [at for name, at in tried.items() if name in names and name not in away]
        sooner = list(retries)
        catching_up = [gates[name] for name in self._all_missed if name in gates and name not in {*away, *tried}]
        behind = min(catching_up, default=self._up_since)
        if behind < self._up_since and caught_up:
            sooner.append(self._spread(behind))
        at = min(sooner, default=self._tick)
        return (at, at in retries) if at < self._tick else (self._tick, False)

    def _spread(self, due: float) -> float:
        """Runs that make up for downtime do not come all at once."""
        if due >= self._up_since or self.check is None:
            return due
        return self.check.now + CATCH_UP_S

    def begin(self, at: float, now: float, *, retries_only: bool) -> Check:
        """The check that was planned for `at`; the beat goes on from there."""
        interval_s = self.definition.interval_s
        self._decided.clear()
        self.check = Check(
            scheduler=self.definition.name,
            at=max(at, reached(now)) if interval_s is None else at,
            now=now,
            up_since=self._up_since,
            retries_only=retries_only,
            exact=interval_s is None,
        )
        if self.check.at == self._tick and interval_s is not None:
            self._tick = rounded(self.check.at + interval_s)
        return self.check

    def take_up(self, slot: float, up_since: float | None, now: float) -> None:
        """The check of an earlier process, judged as of its own time: nobody was away when its slots were found due.

        One from the future, after the clock was set back, is of now: it would give out slots that are yet to come.
        """
        at = min(slot, reached(now))
        self.check = Check(
            scheduler=self.definition.name,
            at=at,
            now=now,
            up_since=at if up_since is None else min(up_since, at),
            exact=self.definition.interval_s is None,
        )

    def end(self, now: float, *, resumed: bool = False) -> None:
        """The next check is the first of its grid that lies ahead; after a resumed cycle, an interval from now."""
        interval = self.definition.interval_s
        if interval is None:
            return
        if resumed:
            self._tick = rounded(now + interval)
        if self._tick <= now:
            self._tick = rounded(self._tick + interval * ((now - self._tick) // interval + 1))

    def follow_clock(self, step: float) -> None:
        """A clock that was set moves the beat along, and the check that is being worked on."""
        self.unclamped = True
        self._tick, self._up_since = rounded(self._tick + step), rounded(self._up_since + step)
        if self.check is not None:
            times = {name: rounded(getattr(self.check, name) + step) for name in ("at", "now", "up_since")}
            self.check = msgspec.structs.replace(self.check, **times)

    # What stands on the list

    def listed(self) -> dict[str, Scheduled]:
        """The services of the list that there are, in its order."""
        if self._known is None:
            self._known = {
                entry.name: entry
                for entry in self.definition.services
                if entry.name in self.catalogue and self.timing(entry) is not None
            }
            self._all_missed = [name for name in self._known if self.catalogue[name].missed == "all"]
        return self._known

    def entry(self, name: str) -> Scheduled | None:
        return self._entries.get(name)

    def timing(self, entry: Scheduled) -> Timing | None:
        if entry.name not in self._timings:
            self._timings[entry.name] = self._work_out(entry, self.catalogue.get(entry.name))
        return self._timings[entry.name]

    def timing_of_any(self, service: Service) -> Timing | None:
        """Of one that may stand neither on the list nor in the catalogue any more."""
        return self._work_out(self.entry(service.name) or Scheduled(name=service.name), service)

    def _work_out(self, entry: Scheduled, service: Service | None) -> Timing | None:
        if service is None:
            return None
        interval_s = self.definition.interval_s
        if interval_s is None and not (entry.every_s or entry.cron or has_timing(service)):
            return None
        return timing_of(service, every_s=entry.every_s, cron=entry.cron, interval_s=interval_s)

    # Who is due, and who is not

    def ask(self, entry: Scheduled, check: Check) -> Due | NotDue | None:
        service, timing = self.catalogue.get(entry.name), self.timing(entry)
        if service is None or timing is None:
            return None
        row = self._timetable.row(entry.name)
        if entry.name not in self.definition.paused_services:
            return self._decide(service, timing, row, check)
        if row is None:
            return NotDue(service=service, until=check.at, reason="paused")
        return skip(service, timing, row, check, "paused")

    def is_long_behind(self, entry: Scheduled, check: Check) -> bool:
        """Whether it takes a while to answer, because the slots of a long time are counted one by one."""
        if check.at - self._timetable.gates.get(entry.name, check.at) < LONG_S:
            return False
        timing = self.timing(entry)
        if timing is None or timing.every_s is not None:
            return False
        return self._decided_before(entry.name, timing, self._timetable.row(entry.name), check) is None

    def _decide(self, service: Service, timing: Timing, row: ServiceTiming | None, check: Check) -> Due | NotDue:
        found = self._decided_before(service.name, timing, row, check)
        if found is None:
            found = decide(service, timing, row, check)
            self._decided[service.name] = timing, row, check, found
        return found

    def _decided_before(
        self, name: str, timing: Timing, row: ServiceTiming | None, check: Check
    ) -> Due | NotDue | None:
        """Decisions are pure: with nothing changed since, the answer still holds."""
        known = self._decided.get(name)
        if known is not None and known[0] is timing and known[1] is row and known[2] is check:
            return known[3]
        return None

    def reasons(self, check: Check) -> dict[str, str]:
        """Why the others are not due, for the first few of them: more than a person reads would only take time."""
        gates = self._timetable.gates
        later = (entry for name, entry in self.listed().items() if gates.get(name, check.at) > check.at)
        reasons: dict[str, str] = {}
        for entry in islice(later, REASONS):
            timing = self.timing(entry)
            if timing is not None:
                found = decide(self.catalogue[entry.name], timing, self._timetable.row(entry.name), check)
                reasons[entry.name] = found.reason
        return reasons

    def is_held(self, name: str) -> bool:
        """Whether a service is worth no look before its claim is released, which is then waited for."""
        claim = self._timetable.claims.get(name)
        if claim is None:
            return False
        row = self._timetable.row(name)
        slot_passes = self.catalogue[name].overlap == "skip" and (row is None or row.open is None)
        return claim.holder != BY_HAND or not slot_passes

    @property
    def waits_for_release(self) -> bool:
        names = self.listed()
        return any(name in names and self.is_held(name) for name in self._timetable.claims)
