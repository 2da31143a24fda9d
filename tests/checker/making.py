"""Sound histories, made up from a seed: what Raptor would leave behind, without running it."""

from __future__ import annotations

import random

import msgspec

from raptor.testing.checker import Declared, Dump, History, Image
from tests.checker import made_slots, made_tasks
from tests.checker.timeline import BOUNDS, alone, together


def make(seed: int) -> History:
    """The sound history of a seed."""
    rng = random.Random(seed)
    line = rng.choice([alone, alone, together])(rng, rng.uniform(300, 1500))
    services = made_slots.services(rng)
    cycles = made_slots.Cycles(
        rng, line, {service.name: service for service in services}, rng.choice([None, None, 10.0, 30.0])
    )
    cycles.make()
    line.end = read = max(cycles.read, line.end)
    tasks = made_tasks.Tasks(rng, line)
    tasks.make(rng.randrange(0, 8))
    lines = sorted([*cycles.lines, *tasks.lines], key=lambda one: one.at)
    images = [
        Image(
            at=stretch.until,
            seen=sum(one.at <= stretch.until for one in lines),
            life=stretch.life,
            ended=tuple(id for at, id in tasks.ended if at <= stretch.until),
            recorded=tuple(run for at, run in cycles.recorded if at <= stretch.until),
        )
        for stretch in line.owners
        if stretch.how == "kill"
    ]
    return History(
        services=tuple(Declared.of(service) for service in [*services, *made_tasks.SERVICES]),
        lives=tuple(line.lives),
        faults=(*line.faults, *cycles.faults),
        commands=tuple(sorted([*cycles.commands, *tasks.commands], key=lambda command: command.at)),
        lines=tuple(one for one in lines if one.at <= read),
        images=tuple(images),
        dump=Dump(
            at=read,
            tasks=tuple(sorted(tasks.kept, key=lambda task: task.id)),
            timing=cycles.table.rows,
            definitions={"main": cycles.definition},
            slots=tuple(cycles.slots),
            runs=tuple(cycles.runs),
        ),
        bounds=msgspec.structs.replace(BOUNDS, shared=line.shared),
    )
