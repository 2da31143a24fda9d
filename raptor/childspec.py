"""Specifications of children and supervisors, checked when they are made: a wrong one cannot exist."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from raptor.actor import Actor, has_handlers
from raptor.errors import BadSpec

BRUTAL_KILL: Final = "brutal_kill"
INFINITY: Final = "infinity"

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Shutdown: TypeAlias = float | Literal["brutal_kill", "infinity"]
ChildType: TypeAlias = Literal["worker", "supervisor"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


_MISSING: Final[Any] = _Missing()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """How a supervisor starts, restarts and stops one child. The defaults are OTP's."""

    id: Hashable = _MISSING  # its name within the supervisor
    start: type[Actor] = _MISSING  # the actor class
    args: tuple[Any, ...] = ()  # for its init
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])  # for its init
    name: str | None = None  # registered with the node
    restart: Restart = "permanent"
    shutdown: Shutdown = _MISSING  # 5 s, and infinity for a supervisor
    type: ChildType = _MISSING  # by the class it starts
    significant: bool = False  # its end may end the supervisor (auto_shutdown)
    start_timeout_s: float | None = 60.0  # how long its init may take
    stall_s: float | None = None  # how long one message may take before it is killed

    def __post_init__(self) -> None:
        self._check_identity()
        supervises = getattr(self.start, "supervises", False)
        if self.type is _MISSING:
            object.__setattr__(self, "type", "supervisor" if supervises else "worker")
        if self.shutdown is _MISSING:
            object.__setattr__(self, "shutdown", INFINITY if self.type == "supervisor" else 5.0)
        self._check_choice("restart", self.restart, get_args(Restart))
        self._check_choice("type", self.type, get_args(ChildType))
        self._check_shutdown()
        self._check_significant()
        self._check_positive("start_timeout_s", self.start_timeout_s)
        self._check_positive("stall_s", self.stall_s)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> ChildSpec:
        """A spec read from elsewhere; what is not known is left out, with a warning."""
        return cls(**_known(cls, mapping, f"child {mapping.get('id')!r}"))

    def _wrong(self, name: str, problem: str) -> BadSpec:
        return BadSpec(name, problem, None if self.id is _MISSING else self.id)

    def _check_identity(self) -> None:
        if self.id is _MISSING:
            raise self._wrong("id", "missing; every child needs one")
        if not is_hashable(self.id):
            raise self._wrong("id", "must be hashable")
        if self.start is _MISSING:
            raise self._wrong("start", "missing; give the actor class")
        if not (isinstance(self.start, type) and issubclass(self.start, Actor)):
            raise self._wrong("start", f"expected a subclass of Actor, not {self.start!r}")
        if not has_handlers(self.start):
            raise self._wrong("start", f"{self.start.__name__} has no handlers")
        if not isinstance(self.args, tuple):
            raise self._wrong("args", f"expected a tuple, not {self.args!r}")
        if not isinstance(self.kwargs, Mapping):
            raise self._wrong("kwargs", f"expected a mapping, not {self.kwargs!r}")
        if not all(isinstance(key, str) for key in self.kwargs):
            raise self._wrong("kwargs", "expected names of parameters, so strings, as keys")
        if not (self.name is None or (isinstance(self.name, str) and self.name)):
            raise self._wrong("name", f"expected a name or None, not {self.name!r}")

    def _check_choice(self, name: str, value: object, choices: tuple[str, ...]) -> None:
        if value not in choices:
            raise self._wrong(name, f"{value!r} is not one of {', '.join(choices)}")

    def _check_shutdown(self) -> None:
        if self.shutdown not in (BRUTAL_KILL, INFINITY) and not _is_seconds(self.shutdown):
            raise self._wrong(
                "shutdown", f"{self.shutdown!r} is not seconds (0 or more), {BRUTAL_KILL!r} or {INFINITY!r}"
            )

    def _check_significant(self) -> None:
        if not isinstance(self.significant, bool):
            raise self._wrong("significant", f"expected True or False, not {self.significant!r}")
        if self.significant and self.restart == "permanent":
            raise self._wrong("significant", "a permanent child is always restarted, so its end means nothing")

    def _check_positive(self, name: str, value: object) -> None:
        if not (value is None or (_is_seconds(value) and value)):
            raise self._wrong(name, f"{value!r} is not a number of seconds above 0, or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before a restart: longer each time, up to a limit, never quite the same."""

    initial_s: float = 0.1
    factor: float = 2.0
    max_s: float = 60.0
    jitter: float = 0.1  # part of the delay that is left to chance

    def __post_init__(self) -> None:
        for name, low in (("initial_s", 0.0), ("factor", 1.0), ("max_s", 0.0), ("jitter", 0.0)):
            value = getattr(self, name)
            if not (_is_seconds(value) and value >= low):
                raise BadSpec(f"backoff.{name}", f"{value!r} is not a number of at least {low:g}")
        if self.jitter > 1:
            raise BadSpec("backoff.jitter", f"{self.jitter!r} is not a part between 0 and 1")

    def delay_s(self, streak: int, rng: random.Random) -> float:
        """The wait before the streak-th restart in a row (from 1)."""
        try:
            full = min(self.max_s, self.initial_s * self.factor ** min(streak - 1, 1000))
        except OverflowError:
            full = self.max_s
        return full * (1 - self.jitter * rng.random())


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """How a supervisor treats its children. The defaults are OTP's; no backoff is OTP's behaviour."""

    strategy: Strategy = "one_for_one"
    intensity: int = 1  # restarts allowed ...
    period_s: float = 5.0  # ... within this time
    auto_shutdown: AutoShutdown = "never"
    backoff: Backoff | None = None

    def __post_init__(self) -> None:
        _check_choice("strategy", self.strategy, get_args(Strategy))
        _check_choice("auto_shutdown", self.auto_shutdown, get_args(AutoShutdown))
        if not isinstance(self.intensity, int) or isinstance(self.intensity, bool) or self.intensity < 0:
            raise BadSpec("intensity", f"{self.intensity!r} is not a whole number of restarts, 0 or more")
        if not (_is_seconds(self.period_s) and self.period_s > 0):
            raise BadSpec("period_s", f"{self.period_s!r} is not a number of seconds above 0")
        if not (self.backoff is None or isinstance(self.backoff, Backoff)):
            raise BadSpec("backoff", f"expected a Backoff or None, not {self.backoff!r}")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Flags:
        """Flags read from elsewhere; what is not known is left out, with a warning."""
        return cls(**_known(cls, mapping, "supervisor"))

    def changed(self, mapping: Mapping[str, Any]) -> Flags:
        """These flags with some of them replaced."""
        return replace(self, **_known(Flags, mapping, "supervisor"))

    def check_children(self, specs: tuple[ChildSpec, ...]) -> None:
        """Refuse what is wrong about the children together, before any of them starts."""
        seen: set[Hashable] = set()
        for spec in specs:
            if not isinstance(spec, ChildSpec):
                raise BadSpec("children", f"expected a ChildSpec, not {spec!r}")
            if spec.id in seen:
                raise BadSpec("id", "used by two children", spec.id)
            seen.add(spec.id)
            self.check_child(spec)

    def check_child(self, spec: ChildSpec) -> None:
        if spec.significant and self.auto_shutdown == "never":
            raise BadSpec("significant", "needs a supervisor whose auto_shutdown is not 'never'", spec.id)


def is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _known(cls: type, mapping: Mapping[str, Any], who: str) -> dict[str, Any]:
    known = {entry.name for entry in fields(cls)}
    for key in mapping:
        if key not in known:
            warnings.warn(f"{who}: unknown field {key!r} is ignored", stacklevel=4)
    return {key: value for key, value in mapping.items() if key in known}


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadSpec(name, f"{value!r} is not one of {', '.join(choices)}")


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
