"""Named work and its options: the Service record, the `@service` decorator, and the Catalogue of what there is.

Nothing is registered. A decorated function carries its Service; a catalogue is built from modules, lists and tables.
How work is run is the runners' business, and when it is due timing's.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar, Unpack, get_args, overload

import msgspec

from raptor.errors import BadInput, ModuleFailed, NoSuchName, did_you_mean
from raptor.timing import check_cron, check_name, check_zone, seconds

Anchor: TypeAlias = Literal["slot", "end", "grid"]
MissedPolicy: TypeAlias = Literal["once", "skip", "all"]
Overlap: TypeAlias = Literal["skip", "queue"]
OnCrash: TypeAlias = Literal["rerun", "skip"]
Kind: TypeAlias = Literal["python", "command"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One service. `kind` names its runner; times are in seconds."""

    name: str
    kind: str = "python"  # python, command
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
    function: Callable[..., Any] | None = None  # kind python
    argv: tuple[str, ...] = ()  # kind command
    env: Mapping[str, str] = {}
    cwd: str | None = None


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
    for option, known in (OPTIONS | _WORK if service.kind == "command" else OPTIONS).items():
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


class Placed(msgspec.Struct, frozen=True):
    """A service, and where it is defined."""

    service: Service
    place: str


class Catalogue(Mapping[str, Service]):
    """The services that there are, by name, in the order of definition. It never changes: reload makes another."""

    def __init__(self, placed: Iterable[Placed] = ()) -> None:
        self._placed: dict[str, Placed] = {}
        for one in placed:
            self._add(one)

    @classmethod
    def of(cls, services: Iterable[Given], folder: Path | None = None) -> Catalogue:
        """The catalogue of a list; "module:function" is looked for in a folder (the current one) first."""
        return cls(place(given, folder or Path.cwd()) for given in services)

    def find(self, name: str) -> Service:
        """The service of that name; an unknown one is refused with the close names."""
        if name not in self._placed:
            raise NoSuchName("service", name, self._placed, hint="`raptor status` lists them")
        return self._placed[name].service

    def where(self, name: str) -> str:
        """The place of its definition, for people."""
        return self._placed[self.find(name).name].place

    def __getitem__(self, name: str) -> Service:
        return self._placed[name].service

    def __iter__(self) -> Iterator[str]:
        return iter(self._placed)

    def __len__(self) -> int:
        return len(self._placed)

    def __repr__(self) -> str:
        return f"Catalogue({', '.join(self)})"

    def _add(self, one: Placed) -> None:
        check_service(one.service)
        name = one.service.name
        there = self._placed.setdefault(name, one)
        # One function may be imported by two modules that are both looked at.
        if there.service != one.service:
            raise BadInput(
                f"service {name!r} is defined twice: in {there.place} and in {one.place}; give one of them another name"
            )


def place(given: Given, folder: Path) -> Placed:
    """A thing of a list as a Service, with its place."""
    if isinstance(given, str):
        return Placed(from_target(given, folder), given)
    if isinstance(given, Service):
        return Placed(given, _place_of(given))
    if not callable(given):
        raise BadInput(f'services: a function, a Service or "module:function" is expected, not {given!r}')
    made = service_of(given) or _plain(given)
    return Placed(made, _place_of(made))


def from_target(target: str, folder: Path) -> Service:
    """The service that "module:function" names; a function that is not decorated gets the defaults."""
    module_name, name = split_target(target)
    module = load_module(module_name, folder)
    found: Any = vars(module).get(name)
    if isinstance(found, Service):
        return found
    if not callable(found):
        functions = (key for key, value in vars(module).items() if callable(value))
        raise NoSuchName("function", name, functions, hint=f"looked in {_file_of(module)}")
    return service_of(found) or _plain(found)


def split_target(target: Any) -> tuple[str, str]:
    """The two names in "module:function"."""
    module, _, name = target.rpartition(":") if isinstance(target, str) else ("", "", "")
    if not module or not name.isidentifier():
        raise BadInput(f'"module:function" is expected, not {target!r}')
    return module, name


def from_module(name: str, folder: Path) -> list[Placed]:
    """Every service of a module, in its order: decorated functions, and Services that stand there."""
    module = load_module(name, folder)
    made: dict[int, Service] = {}
    for thing in vars(module).values():
        found = thing if isinstance(thing, Service) else service_of(thing)
        if found is not None:
            made[id(thing)] = found
    if not made:
        raise BadInput(f"{_file_of(module)} defines no service: put @service before a function")
    return [Placed(one, _place_of(one, _file_of(module))) for one in made.values()]


def load_module(name: str, folder: Path) -> ModuleType:
    """Import a module by its name, or by the path of its file, as if Python had been started in the folder.

    The folder stays on sys.path, because a service may import its neighbours when it runs.
    """
    folder = folder.absolute()
    if name.endswith(".py") or os.sep in name:
        file = folder / name
        if not file.is_file():
            raise NoSuchName("file", name, (other.name for other in file.parent.glob("*.py")), f"looked for {file}")
        folder, name = file.parent, file.name.removesuffix(".py")
    _check_module_name(name, folder)
    before = list(sys.path)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        sys.path[:] = before
        if isinstance(error, ModuleNotFoundError) and error.name in _parents(name):
            neighbours = [file.stem for file in folder.glob("*.py")]
            raise NoSuchName("module", name, neighbours, hint=f"looked in {folder} and on Python's path") from None
        raise ModuleFailed(name, _trace(error)) from None


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


def _is_zone(value: Any) -> bool:
    check_zone(value)
    return True


def _is_command(value: object) -> bool:
    words = shaped(value, tuple[str, ...], A_COMMAND)
    return bool(words) and bool(words[0]) and not any("\0" in word for word in words)


def _is_environment(value: object) -> bool:
    env = shaped(value, dict[str, str], AN_ENVIRONMENT)
    return all(name and "=" not in name and "\0" not in name + text for name, text in env.items())


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
}
_WORK: Final[dict[str, _Option]] = {
    "command": _Option("argv", A_COMMAND, _is_command),
    "env": _Option("env", AN_ENVIRONMENT, _is_environment),
    "cwd": _Option("cwd", "a folder", lambda value: isinstance(value, str) and bool(value) and "\0" not in value),
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
    ]


def _wrong_work(service: Service) -> list[tuple[bool, str, str]]:
    command = service.kind == "command"
    kinds = get_args(Kind)
    return [
        (service.kind not in kinds, "kind", f"{' or '.join(kinds)}, not {service.kind!r}"),
        (command and service.isolate, "isolate", "a command has a process of its own anyway"),
        (command and service.function is not None, "function", "a command has none"),
        (not command and bool(service.argv), "command", "goes with kind command"),
        (not command and bool(service.env), "env", "goes with a command"),
        (not command and service.cwd is not None, "cwd", "goes with a command"),
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
    except AttributeError:
        raise BadInput(f"{at}{function!r} cannot be decorated: write a function that calls it") from None
    return function


def _plain(function: Callable[..., Any]) -> Service:
    name = getattr(function, "__name__", "")
    return make_service(name, {"function": function})


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


def _place_of(service: Service, otherwise: str = "a list of services") -> str:
    function: Any = service.function
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return otherwise if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _file_of(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or module.__name__


def _parents(name: str) -> list[str]:
    """a.b.c -> a, a.b, a.b.c: which of them is missing does not matter."""
    parts = name.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]


def _check_module_name(name: str, folder: Path) -> None:
    if not all(name.split(".")):
        raise BadInput(f"module {name!r}: a name such as app.services, or the path of a .py file is expected")
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        raise BadInput(f"module {name!r}: Python has a module {top} of its own: rename the file")
    spec = PathFinder.find_spec(top, [str(folder)])
    here, loaded = (None if spec is None else spec.origin), getattr(sys.modules.get(top), "__file__", None)
    if here and loaded and os.path.realpath(here) != os.path.realpath(loaded):
        raise BadInput(f"module {name!r}: another one of that name is loaded, from {loaded}: rename {here}")


def _trace(error: BaseException) -> str:
    """The traceback from the user's first line on: what is before it is the import's machinery."""
    import traceback  # slow, and needed when a module fails only

    at: TracebackType | None = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename.startswith((__file__, importlib.__file__, "<frozen")):
        at = at.tb_next
    return "".join(traceback.format_exception(type(error), error, at))


class _Decorator(ModuleType):
    def __call__(self, *function: Any, **options: Any) -> Any:
        return service(*function, **options)


# `from raptor import service` gives this module to whoever comes after its first import, and must give the decorator.
sys.modules[__name__].__class__ = _Decorator
