"""Who was there when, in a made-up history: lives of nodes, what ended them, and what was disturbed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

from raptor.testing.checker import Bounds, Fault, Life

START = 1_700_000_000.0
BOUNDS = Bounds(late_s=2.5, recover_s=15.0, settle_s=20.0, run_s=60.0)
BOOT_S = 1.0  # at most, until a life works
GRACE_S = 3.0  # of an orderly stop

How = Literal["kill", "stop", "freeze", "end"]


@dataclass(frozen=True)
class Stretch:
    """A life works, from one moment to another, and what ends that."""

    life: int
    since: float
    until: float
    how: How
    thawed: float = 0.0  # of a freeze: when it goes on


@dataclass
class Timeline:
    """`owners` are the stretches of the scheduler, one after the other; `stretches` those of all workers."""

    end: float
    shared: bool
    lives: list[Life] = field(default_factory=list[Life])
    faults: list[Fault] = field(default_factory=list[Fault])
    owners: list[Stretch] = field(default_factory=list[Stretch])
    stretches: list[Stretch] = field(default_factory=list[Stretch])

    def working(self, at: float) -> list[Stretch]:
        return [stretch for stretch in self.stretches if stretch.since <= at < stretch.until]

    def next_work(self, at: float) -> float:
        """The first moment from then on at which somebody works."""
        return min(max(at, stretch.since) for stretch in self.stretches if stretch.until > at)


def alone(rng: random.Random, length_s: float) -> Timeline:
    """One node after the other: killed, or stopped in order."""
    line = Timeline(START + length_s, shared=False)
    at = START
    most = rng.randrange(6)
    for number in range(most + 1):
        since = at + rng.uniform(0.05, BOOT_S)
        is_last = at > line.end - 200 or number == most
        until = line.end + 1e6 if is_last else since + rng.choice([rng.uniform(0.1, 5), rng.uniform(20, 400)])
        how: How = "end" if is_last else rng.choice(["kill", "kill", "stop"])
        line.stretches.append(Stretch(number, since, until, how))
        if is_last:
            line.lives.append(Life(life=number, at=at))
            line.end = max(line.end, at + 100.0)
            break
        gone = until if how == "kill" else until + GRACE_S
        line.lives.append(Life(life=number, at=at, ended=gone, killed=how == "kill"))
        if how == "kill":
            line.faults.append(Fault(what="kill", at=gone, life=number))
        at = gone + rng.choice([rng.uniform(0.1, 5), rng.uniform(10, 300)])
    line.owners = line.stretches
    return line


def together(rng: random.Random, length_s: float) -> Timeline:
    """Two nodes on one store: whoever has the scheduler is killed or stands still, and the other goes on."""
    line = Timeline(START + length_s, shared=True)
    began = {0: START, 1: START}  # by life
    since = {0: START + 0.5, 1: START + 0.6}
    owner, other, owned, at, number = 0, 1, START + 1.0, START, 2
    for _ in range(rng.randrange(1, 5)):
        at += rng.uniform(60, 300)
        if at > line.end - 150:
            break
        if rng.random() < 0.5:
            line.stretches.append(Stretch(owner, since[owner], at, "kill"))
            line.owners.append(Stretch(owner, owned, at, "kill"))
            line.lives.append(Life(life=owner, node=str(owner), at=began.pop(owner), ended=at, killed=True))
            back = at + rng.uniform(1, 30)
            began[number], since[number] = back, back + rng.uniform(0.05, BOOT_S)
            gone, number = number, number + 1
        else:
            thawed = at + rng.uniform(12, 40)
            line.stretches.append(Stretch(owner, since[owner], at, "freeze", thawed))
            line.owners.append(Stretch(owner, owned, at, "freeze", thawed))
            line.faults.append(Fault(what="freeze", at=at, until=thawed, life=owner))
            since[owner] = thawed + 0.5
            gone = owner
        owned = at + rng.uniform(1, 8)
        owner, other = other, gone
        at += 45
    line.owners.append(Stretch(owner, owned, line.end + 1e6, "end"))
    for life, start in began.items():
        line.lives.append(Life(life=life, node=str(life), at=start))
        line.stretches.append(Stretch(life, since[life], line.end + 1e6, "end"))
    return line
