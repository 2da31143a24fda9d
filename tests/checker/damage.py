"""Every kind of damage, with the kinds of violations of which one must tell it."""

from __future__ import annotations

import random

from raptor.testing.checker import History, check
from tests.checker.damage_slots import SLOT_DAMAGE
from tests.checker.damage_tasks import TASK_DAMAGE, Damage

DAMAGE: dict[str, tuple[Damage, set[str]]] = {**TASK_DAMAGE, **SLOT_DAMAGE}


def untold(history: History, name: str, seed: int) -> list[str] | None:
    """What is told instead of a damage; empty if it is told as it should be, None where it does not apply."""
    damage, kinds = DAMAGE[name]
    harmed = damage(history, random.Random(f"{name} {seed}"))
    if harmed is None:
        return None
    found = check(harmed)
    return [] if any(one.kind in kinds for one in found) else [str(one) for one in found] or ["nothing"]
