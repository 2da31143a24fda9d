"""Named work and its options: the Service record and the `@service` decorator.

Nothing is registered: a decorated function carries its Service, and catalogue.py collects them. How work is run is the
runners' business, and when it is due timing's.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar, Unpack, get_args, overload

import msgspec

from raptor.calls import Call, Message, check_call, check_message
from raptor.current import Putter
from raptor.errors import BadInput, did_you_mean
from raptor.payload import Codec
from raptor.timing import check_cron, check_name, check_zone, seconds

Anchor: TypeAlias = Literal["slot", "end", "grid"]
MissedPolicy: TypeAlias = Literal["once", "skip", "all"]
Overlap: TypeAlias = Literal["skip", "queue"]
OnCrash: TypeAlias = Literal["rerun", "skip"]
Kind: TypeAlias = Literal["python", "command", "http", "publish"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One service. `kind` names its runner; times are in seconds."""

    name: str
    kind: str = "python"  # one of Kind
    every_s: float | None = None  # None: the scheduler's interval
    cron: str | None = None
    timezone: str | None = None
    trigger: Any = None  # an APScheduler trigger, in Python only
    anchor: Anchor = "slot"
    timeout_s: float | None = None  # None: the runner's default; 0: none
    max_attempts: int | None = None  # runs for one slot; None: no limit
    backoff: Any = None  # a tenacity wait; None: 1, 2, 4, ... s up to an hour
    missed: MissedPolicy = "once"
    missed_limit: int = 10
    overlap: Overlap = "skip"
    on_crash: OnCrash = "rerun"
    jitter_s: float = 0.0
    on_failure: str | tuple[str, ...] | None = None  # a URL, or a command
    isolate: bool = False
    count: int = 0  # runs that one process may take; 0: one, or as many as come while it may live
    live_s: float | None = None  # how long one process may live; None or 0: for its runs
    queue: str = "default"  # of its tasks, as the five that follow
    priority: int = 5
    batch: int | None = None  # tasks in one call, at most; None: one, as its own arguments
    active_s: float | None = None  # not run when it is later than that
    codec: Codec = "json"
    unlimited: bool = False  # tasks are tried for ever
    function: Callable[..., Any] | None = None  # kind python
    argv: tuple[str, ...] = ()  # kind command
    env: Mapping[str, str] = {}
    cwd: str | None = None
    http: Call | None = None  # kind http
    publish: Message | None = None  # kind publish

    @property
    def takes_many(self) -> bool:
        """Whether one process may take many runs."""
        return self.count > 1 or (self.count == 0 and bool(self.live_s))


Given: TypeAlias = Callable[..., Any] | Service | str
"""What a list of services may hold: a function, decorated or not, a Service, or "module:function"."""


class Options(TypedDict, total=False):
    """The options of a service as they are written. None means that an option is not given."""

    every: str | timedelta | None
    cron: str | None
    timezone: str | None
    trigger: Any
    anchor: Anchor | None
    timeout: str | timedelta | Literal[0] | None
    max_attempts: int | None
    backoff: Any
    missed: MissedPolicy | None
    missed_limit: int | None
    overlap: Overlap | None
    on_crash: OnCrash | None
    jitter: str | timedelta | Literal[0] | None
    on_failure: str | list[str] | tuple[str, ...] | None
    isolate: bool | None
    count: int | None
    live: str | timedelta | Literal[0] | None
    queue: str | None
    priority: int | None
    batch: int | None
    active: str | timedelta | None
    codec: Codec | None
    unlimited: bool | None


class NamedOptions(Options, total=False):
    name: str | None  # None: the function's own


@overload
def service(function: F, /, **options: Unpack[NamedOptions]) -> F: ...
@overload
def service(**options: Unpack[NamedOptions]) -> Callable[[F], F]: ...
def service(function: Any = None, /, **options: Any) -> Any:
    """Make a function a service: `@service`, or `@service(every="24h", timeout="5m")`. It can be called as before."""
    return partial(_carry, options) if function is None else _carry(options, function)


def service_of(thing: object) -> Service | None:
    """The Service that a decorated function carries."""
    if isinstance(thing, type | ModuleType) or not callable(thing):
        return None
    try:
        # Not getattr: a proxy in somebody's module may answer anything to it, or fail.
        found = object.__getattribute__(thing, "__dict__").get("service")
    except AttributeError:
        return None
    if not isinstance(found, Service):
        return None
    # functools.wraps copies the attribute to a decorator's wrapper, and the wrapper is what shall run.
    return found if found.function is thing else msgspec.structs.replace(found, function=thing)


def command_service(
    name: str,
    argv: Iterable[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> Service:
    """A service that runs a command line."""
    at = f"service {name!r}: "
    folder = None if cwd is None else os.fspath(cwd)
    # A string is left as it is: as a tuple of letters it would pass for a command.
    work = {"argv": argv if isinstance(argv, str) else tuple(argv), "env": dict(env or {}), "cwd": folder}
    return make_service(name, {"kind": "command", **work, **read_options({**options}, at)}, at)


def make_service(name: str, fields: Mapping[str, Any], at: str = "") -> Service:
    """A Service of checked fields. `at` begins every complaint, and an option's name follows it."""
    made = Service(name=name, **fields)
    check_service(made, at)
    return made


def read_options(options: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Options as they are written -> fields of Service. Only the writing is judged here: see check_service."""
    fields: dict[str, Any] = {}
    for option, value in options.items():
        if option not in OPTIONS:
            close = did_you_mean(option, (*OPTIONS, "name"))
            raise BadInput(f"{at}{option}: no such option: {close or 'the options are ' + ', '.join(OPTIONS)}")
        if value is not None:
            known = OPTIONS[option]
            fields[known.field] = reading(f"{at}{option}", known.read, value)
    return fields


def reading(where: str, read: Callable[..., T], *written: Any) -> T:
    """Read what is written, and say where it stands if it cannot be read."""
    try:
        return read(*written)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def shaped(value: object, shape: type[T], accepted: str) -> T:
    """The value, if it has the type."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError:
        raise BadInput(f"{accepted} is expected, not {value!r}") from None


def check_service(service: Service, at: str = "") -> None:
    """Refuse values and combinations that cannot work."""
    check_name(shaped(service.name, str, "the name of a service"))
    at = at or f"service {service.name!r}: "
    for option, known in (OPTIONS | _WORK.get(service.kind, {})).items():
        value = getattr(service, known.field)
        if value is not None and not reading(f"{at}{option}", known.fits, value):
            raise BadInput(f"{at}{option}: {known.accepted}, not {value!r}")
    for wrong, option, problem in (*_wrong_times(service), *_wrong_work(service)):
        if wrong:
            raise BadInput(f"{at}{option}: {problem}")
    if service.kind == "python" and service.function is not None:
        _check_function(service, service.function, at)


def read_interval(value: str | timedelta) -> float | None:
    """How often a scheduler checks: a duration, or None for "auto"."""
    return None if value == "auto" else seconds(value)


class _Option(msgspec.Struct, frozen=True):
    """An option: the field it sets, how it is read, which values of the field are right."""

    field: str
    accepted: str
    fits: Callable[[Any], bool]
    read: Callable[[Any], Any] = lambda value: value


def _duration_or_zero(value: Any) -> float:
    return 0.0 if value in (0, "0", "0s") and value is not False else seconds(value)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_cron(value: Any) -> bool:
    check_cron(value)
    return True


def _is_name(value: Any) -> bool:
    check_name(shaped(value, str, "the name of a queue"))
    return True


def _is_zone(value: Any) -> bool:
    check_zone(value)
    return True


def _is_command(value: object) -> bool:
    words = shaped(value, tuple[str, ...], A_COMMAND)
    return bool(words) and bool(words[0]) and not any("\0" in word for word in words)


def _is_environment(value: object) -> bool:
    env = shaped(value, dict[str, str], AN_ENVIRONMENT)
    return all(name and "=" not in name and "\0" not in name + text for name, text in env.items())


def _is_call(value: object) -> bool:
    if isinstance(value, Call):
        check_call(value)
    return isinstance(value, Call)


def _is_message(value: object) -> bool:
    if isinstance(value, Message):
        check_message(value)
    return isinstance(value, Message)


def _is_alarm(value: Any) -> bool:
    return value.startswith(("http://", "https://")) if isinstance(value, str) else _is_command(value)


def _choice(field: str, choices: Any) -> _Option:
    words = get_args(choices)
    return _Option(field, " or ".join(map(repr, words)), lambda value: isinstance(value, str) and value in words)


def _alarm(value: object) -> object:
    return value if isinstance(value, str) else shaped(value, tuple[str, ...], AN_ALARM)


AN_ALARM: Final = 'a URL (https://...) or a command such as ["notify", "me"]'
AN_ENVIRONMENT: Final = 'names and values in text such as {PORT = "8080"}'
A_COMMAND: Final = 'a list of words such as ["/usr/local/bin/backup", "--quick"]'

OPTIONS: Final[dict[str, _Option]] = {
    "every": _Option(
        "every_s", 'a duration above zero such as "90s" or "1h30m"', lambda s: _is_seconds(s) and s > 0, seconds
    ),
    "cron": _Option("cron", "a cron line", _is_cron),
    "timezone": _Option("timezone", "a time zone", _is_zone),
    "trigger": _Option("trigger", "an APScheduler trigger, in Python", lambda t: hasattr(t, "get_next_fire_time")),
    "anchor": _choice("anchor", Anchor),
    "timeout": _Option("timeout_s", 'a duration such as "5m", or 0 for none', _is_seconds, _duration_or_zero),
    "max_attempts": _Option("max_attempts", "a whole number from 1", is_count),
    "backoff": _Option("backoff", "a tenacity wait, in Python", callable),
    "missed": _choice("missed", MissedPolicy),
    "missed_limit": _Option("missed_limit", "a whole number from 1", is_count),
    "overlap": _choice("overlap", Overlap),
    "on_crash": _choice("on_crash", OnCrash),
    "jitter": _Option("jitter_s", 'a duration such as "10s", or 0 for none', _is_seconds, _duration_or_zero),
    "on_failure": _Option("on_failure", AN_ALARM, _is_alarm, _alarm),
    "isolate": _Option("isolate", "true or false", lambda value: isinstance(value, bool)),
    "count": _Option("count", "a whole number from 0", lambda n: is_count(n) or (n == 0 and n is not False)),
    "live": _Option("live_s", 'a duration such as "1h", or 0 for none', _is_seconds, _duration_or_zero),
    "queue": _Option("queue", "the name of a queue", _is_name),
    "priority": _Option("priority", "a whole number from 0 (first) to 9", lambda n: n == 0 or (is_count(n) and n <= 9)),
    "batch": _Option("batch", "a whole number from 1", is_count),
    "active": _Option("active_s", 'a duration such as "1h"', _is_seconds, seconds),
    "codec": _choice("codec", Codec),
    "unlimited": _Option("unlimited", "true or false", lambda value: isinstance(value, bool)),
}
_WORK: Final[dict[str, dict[str, _Option]]] = {
    "command": {
        "command": _Option("argv", A_COMMAND, _is_command),
        "env": _Option("env", AN_ENVIRONMENT, _is_environment),
        "cwd": _Option("cwd", "a folder", lambda value: isinstance(value, str) and bool(value) and "\0" not in value),
    },
    "http": {"http": _Option("http", "a Call", _is_call)},
    "publish": {"publish": _Option("publish", "a Message", _is_message)},
}


def _wrong_times(service: Service) -> list[tuple[bool, str, str]]:
    every, cron, trigger = service.every_s is not None, service.cron is not None, service.trigger is not None
    return [
        (every and cron, "cron", "goes without every: give one of them"),
        (every and trigger, "trigger", "goes without every: give one of them"),
        (cron and trigger, "trigger", "goes without cron: give one of them"),
        (service.timezone is not None and not cron, "timezone", "goes with cron, and there is none"),
        (
            service.anchor != "slot" and (cron or trigger),
            "anchor",
            f"{service.anchor!r} goes with every: cron and trigger have their own times",
        ),
        (service.missed_limit != 10 and service.missed != "all", "missed_limit", "goes with missed = 'all'"),
        (every and service.jitter_s >= (service.every_s or 0), "jitter", "must be shorter than every"),
        (service.unlimited and service.max_attempts is not None, "unlimited", "goes without max_attempts"),
    ]


def _wrong_work(service: Service) -> list[tuple[bool, str, str]]:
    kind, command, plain = service.kind, service.kind == "command", service.kind == "python"
    kinds = get_args(Kind)
    return [
        (service.kind not in kinds, "kind", f"{' or '.join(kinds)}, not {service.kind!r}"),
        (command and service.isolate, "isolate", "a command has a process of its own anyway"),
        (command and service.function is not None, "function", "a command has none"),
        (not plain and service.isolate, "isolate", "goes with a function"),
        (not plain and service.count != 0, "count", "goes with a function"),
        (not plain and bool(service.live_s), "live", "goes with a function"),
        (not plain and service.function is not None, "function", "goes with kind python"),
        (not command and bool(service.argv), "command", "goes with kind command"),
        (not command and bool(service.env), "env", "goes with a command"),
        (not command and service.cwd is not None, "cwd", "goes with a command"),
        ((service.http is None) == (kind == "http"), "http", "goes with kind http, which needs it"),
        ((service.publish is None) == (kind == "publish"), "publish", "goes with kind publish, which needs it"),
    ]


def _carry(options: Mapping[str, Any], function: Any) -> Any:
    if not callable(function):
        raise BadInput(f'@service: a function or named options such as every="24h" are expected, not {function!r}')
    given = options.get("name")
    name: Any = getattr(function, "__name__", "") if given is None else given
    at = f"service {name!r}: "
    fields = read_options({option: value for option, value in options.items() if option != "name"}, at)
    made = make_service(name, {**fields, "function": function}, at)
    carrier: Any = function
    try:
        carrier.service = made
        carrier.put = Putter(made.name)
    except AttributeError:
        raise BadInput(f"{at}{function!r} cannot be decorated: write a function that calls it") from None
    return function


def _check_function(service: Service, function: Any, at: str) -> None:
    if isinstance(function, type) or not callable(function):
        raise BadInput(f"{at}function: a function is expected, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(f"{at}function: it yields, so a call of it would do nothing: return instead")
    apart = service.isolate or (service.timeout_s and not inspect.iscoroutinefunction(function))
    if apart and "<" in getattr(function, "__qualname__", ""):
        option = "isolate" if service.isolate else "timeout"
        raise BadInput(
            f"{at}{option}: it needs a process of its own, which must import the function by name:"
            " define it at the top of a module, or make it async"
        )
    if service.takes_many and not apart:
        option = "count" if service.count else "live"
        raise BadInput(f"{at}{option}: goes with isolate, or with the timeout of a sync function")


class _Decorator(ModuleType):
    def __call__(self, *function: Any, **options: Any) -> Any:
        return service(*function, **options)


# `from raptor import service` gives this module to whoever comes after its first import, and must give the decorator.
sys.modules[__name__].__class__ = _Decorator
