"""What is done to the nodes of a round, and how often: chance decides, by a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

import msgspec

from raptor.faults import POINTS, TASK_POINTS

Deed: TypeAlias = Literal["kill", "point", "child", "both", "stop", "term", "cut"]
"""kill -9 of a node at any moment, or at a named point; of a service's process; of both; SIGSTOP; SIGTERM; and kill -9
in the middle of what SIGTERM began."""

DEEDS: tuple[Deed, ...] = get_args(Deed)
WEIGHTS: Mapping[Deed, float] = {
    "kill": 10.0, "point": 5.0, "child": 1.0, "both": 1.0, "stop": 0.3, "term": 1.0, "cut": 1.0,
}  # fmt: skip
SHARED: Mapping[Deed, float] = {**WEIGHTS, "stop": 1.0}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Of one round."""

    seed: int
    nodes: int
    lease_s: float | None  # of a taken task; None: the usual
    rights_s: float | None  # of the right to a scheduler or a service: more than a heartbeat
    mean_s: float  # of work, before something is done to a node
    weights: Mapping[Deed, float]
    stop_s: tuple[float, float]  # how long one stands still
    server_s: float  # of work, before the server is killed, where it is ours


def plan_of(seed: int, *, shared: bool) -> Plan:
    rng = random.Random(seed)
    usual = SHARED if shared else WEIGHTS
    # Not everything each time: what is rare among all deeds has its day.
    weights: dict[Deed, float] = {
        deed: weight * rng.choice((0.0, 1.0, 1.0, 1.0, 4.0)) for deed, weight in usual.items()
    }
    weights["kill"] = usual["kill"]
    return Plan(
        seed=seed,
        nodes=rng.randrange(2, 5) if shared else 1,
        lease_s=3.0 if shared else None,
        rights_s=7.0 if shared else None,
        mean_s=rng.choice((0.03, 0.06, 0.15)) if not shared else rng.choice((0.3, 0.6, 1.2)),
        weights=weights,
        stop_s=(1.0, 9.0) if shared else (0.1, 1.5),
        server_s=rng.choice((1.0, 3.0)),
    )


def choose(plan: Plan, rng: random.Random) -> Deed:
    (deed,) = rng.choices(DEEDS, [plan.weights[deed] for deed in DEEDS])
    return deed


def named_point(rng: random.Random) -> str:
    return f"{rng.choice((*POINTS, *TASK_POINTS))}:{rng.choice((1, 1, 2, 3, 5, 9, 15))}"
