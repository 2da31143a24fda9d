"""Settings in layers (flag > RAPTOR_* > raptor.toml > user config > default), and what raptor.toml defines.

Loading changes nothing: it returns a new Config, or raises. Modules are imported by `Config.catalogue` only.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
import platformdirs

from raptor.address import Allowed, read_allowed, read_network, read_origin
from raptor.builtin import builtin_services, with_allowed
from raptor.catalogue import Catalogue, Placed, from_module, place
from raptor.declared import Declared, queues, read_path, read_table, refuse_unknown, schedulers, services
from raptor.endpoint import Endpoint, read_endpoint
from raptor.errors import BadInput, NoSuchName, RefusedState
from raptor.masked import masked
from raptor.rows import Definition, Line
from raptor.service import Given, is_count, reading, shaped
from raptor.timing import check_name, check_zone, seconds, show_seconds

FILE: Final = "raptor.toml"
LARGEST: Final = 1 << 20  # bytes; a file of settings is never longer

LogFormat: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
Color: TypeAlias = Literal["auto", "always", "never"]


class Setting(msgspec.Struct, frozen=True):
    """A value in force, and where it came from."""

    name: str
    value: Any
    source: str  # a flag, a variable, a file, or "default"

    @property
    def text(self) -> str:
        """The value as people write it."""
        value: Any = self.value
        if isinstance(value, float):
            return show_seconds(value)
        if isinstance(value, tuple) and not isinstance(value, Endpoint):
            value = ", ".join(msgspec.convert(self.value, list[str]))
        if self.name == "store" and value is not None:
            return masked(str(value))
        return "-" if value in (None, "") else str(value)


class Log(msgspec.Struct, frozen=True, kw_only=True):
    format: LogFormat = "text"
    level: LogLevel = "info"
    file: Path | None = None  # None: the terminal


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the ledger is kept."""

    age_s: float
    keep: int  # runs of each service
    tasks_s: float = 86400.0  # tasks that are done or cancelled; 0: they go at once


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The worker of a node."""

    processors: int  # tasks at a time; 0: no worker
    queues: tuple[str, ...]  # none: all that there are


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers for Prometheus."""

    listen: Endpoint | None = None  # where GET /metrics is answered
    namespace: str = "raptor"  # what their names begin with


class Notify(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the calls of on_failure."""

    per_minute: int


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was set, and what the project defines."""

    file: Path | None  # the raptor.toml
    home: Path  # the state directory
    store: str | None = None  # the address of another store than the files in `home`
    modules: tuple[str, ...]
    module_folder: Path  # where their names are looked for first
    tz: str | None  # to show times in; None: the system's
    color: Color
    log: Log
    retention: Retention
    notify: Notify
    worker: WorkerSettings
    metrics: MetricsSettings
    queues: tuple[Line, ...]
    http: Allowed  # where services may call
    services: tuple[Declared, ...]
    schedulers: tuple[Definition, ...]
    settings: tuple[Setting, ...]  # for `raptor config --explain`

    @classmethod
    def load(
        cls,
        flags: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user_file: Path | None = None,
        user_state: Path | None = None,
    ) -> Config:
        """Read every layer. `flags` holds settings by name ("home", "log.format"); None there means not given."""
        environ = os.environ if environ is None else environ
        cwd = cwd or Path.cwd()
        user_file = user_file or platformdirs.user_config_path("raptor") / "config.toml"
        user_state = user_state or platformdirs.user_state_path("raptor")
        above = [_flags(flags or {}, cwd), *_environment(environ, cwd)]
        file, source = _project_file(above, cwd)
        document = {} if file is None else read_toml(file)
        default = _defaults(user_state, cwd if file is None else file.parent)
        layers = [*above, *_project(file, document), *_user(user_file), default]
        found = {name: _resolve(name, layers) for name in _SETTINGS}
        value = {name: setting.value for name, (setting, _) in found.items()}
        return cls(
            file=file,
            home=value["home"],
            store=value["store"],
            modules=value["module"],
            module_folder=found["module"][1],
            tz=value["tz"],
            color=value["color"],
            log=Log(format=value["log.format"], level=value["log.level"], file=value["log.file"]),
            retention=Retention(
                age_s=value["retention.age"], keep=value["retention.keep"], tasks_s=value["retention.tasks"]
            ),
            worker=WorkerSettings(processors=value["worker.processors"], queues=value["worker.queues"]),
            queues=() if file is None else queues(document, file),
            metrics=MetricsSettings(listen=value["metrics.listen"], namespace=value["metrics.namespace"]),
            notify=Notify(per_minute=value["notify.per_minute"]),
            http=read_allowed(value["http.allow"], value["http.networks"]),
            services=() if file is None else services(document, file, environ),
            schedulers=() if file is None else schedulers(document, file),
            settings=(Setting("config", file, source), *(setting for setting, _ in found.values())),
        )

    def catalogue(self, services: Iterable[Given] = ()) -> Catalogue:
        """All services: those given, those of the modules, those of raptor.toml. Modules are imported here."""
        placed = [place(given, self.module_folder) for given in services]
        for module in self.modules:
            placed += from_module(module, self.module_folder)
        placed += [Placed(declared.service(), declared.place) for declared in self.services]
        under = [Placed(with_allowed(one.service, self.http), one.place) for one in placed]
        catalogue = Catalogue(under, builtin=builtin_services(self.http))
        for scheduler in self.schedulers:
            for entry in scheduler.services:
                if entry.name not in catalogue:
                    where = f"{self.file}: schedulers.{scheduler.name}.services"
                    raise NoSuchName("service", entry.name, catalogue, hint=f"{where} names it")
        return catalogue


def find_file(start: Path) -> Path | None:
    """The nearest raptor.toml: in a folder, or above it."""
    for folder in (start, *start.parents):
        file = folder / FILE
        if os.path.isfile(file):
            # Its commands run as whoever started Raptor: one that lies about in /tmp must not be picked up unseen.
            owner = file.stat().st_uid
            if folder != start and owner not in (0, os.getuid()):
                raise BadInput(f"{file} belongs to another user (uid {owner}): name it with --config if you trust it")
            return file
    return None


def read_toml(file: Path) -> dict[str, Any]:
    """The document of a TOML file; what is wrong with it is said with its line."""
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except PermissionError:
        raise RefusedState(
            "unreadable", file, "cannot be read", "run as its owner, or name another with --config"
        ) from None
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise BadInput(f"{file}: longer than {LARGEST} bytes: this is no file of settings")
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{file}:{line}: not UTF-8: save the file in that encoding") from None
    except RecursionError:
        raise BadInput(f"{file}: nested too deep") from None
    except ValueError as error:
        raise BadInput(_not_toml(file, str(error), len(data.splitlines()))) from None


def _not_toml(file: Path, problem: str, last: int) -> str:
    at = re.fullmatch(r"(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)", problem, re.DOTALL)
    if at is not None:
        return f"{file}:{at['line']}: {at['what']} (column {at['column']})"
    return f"{file}:{last}: {problem}" if "end of document" in problem else f"{file}: {problem}"


class _Known(msgspec.Struct, frozen=True):
    """A setting: how it is read, given the folder that relative paths begin in, and what it is otherwise."""

    read: Callable[[Any, Path], Any]
    default: Any = None


class _Layer(msgspec.Struct, frozen=True):
    """Values as they are written, all in one place."""

    values: Mapping[str, Any]
    folder: Path
    source: Callable[[str], str]  # of a setting, by its name
    is_file: bool = False

    def where(self, name: str) -> str:
        return f"{self.source(name)}: {name}" if self.is_file else self.source(name)


def _modules(value: Any, folder: Path) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else value
    names = shaped(listed, tuple[str, ...], "the name of a module, or a list of them,")
    if not all(name.strip() for name in names):
        raise BadInput(f"a module without a name: {value!r}")
    return tuple(name.strip() for name in names)


def _address(value: Any, folder: Path) -> str:
    if not isinstance(value, str) or not re.match(r"[a-z][a-z0-9+]*:", value):
        shown = masked(value) if isinstance(value, str) else value
        raise BadInput(f"the address of a store is expected, such as postgresql://host/database, not {shown!r}")
    return value


def _zone(value: Any, folder: Path) -> str:
    check_zone(value)
    return str(value)


def _duration(value: Any, folder: Path) -> float:
    return seconds(value)


def _duration_or_zero(value: Any, folder: Path) -> float:
    return 0.0 if value in (0, "0", "0s") and value is not False else seconds(value)


def _count_or_zero(value: Any, folder: Path) -> int:
    return 0 if value in (0, "0") and value is not False else _count(value, folder)


def _count(value: Any, folder: Path) -> int:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else value
    if not is_count(number):
        raise BadInput(f"a whole number from 1 is expected, not {value!r}")
    return int(number)


def _endpoint(value: Any, folder: Path) -> Endpoint:
    return value if isinstance(value, Endpoint) else read_endpoint(value)  # a reload hands on what was read


def _namespace(value: Any, folder: Path) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}", value):
        raise BadInput(f"letters, digits and underscores are expected, not {value!r}")
    return value


def _listed(read_one: Callable[[str], object]) -> Callable[[Any, Path], tuple[str, ...]]:
    """Texts in a list, or between commas; each is read, to refuse a wrong one, and kept as it is written."""

    def read(value: Any, folder: Path) -> tuple[str, ...]:
        texts = shaped(value.split(",") if isinstance(value, str) else value, tuple[str, ...], "a list of texts")
        for text in texts:
            read_one(text.strip())
        return tuple(text.strip() for text in texts)

    return read


def _one_of(choices: Any) -> Callable[[Any, Path], str]:
    words: tuple[str, ...] = get_args(choices)

    def read(value: Any, folder: Path) -> str:
        if not isinstance(value, str) or value not in words:
            raise BadInput(f"{', '.join(words[:-1])} or {words[-1]} is expected, not {value!r}")
        return value

    return read


_SETTINGS: Final[Mapping[str, _Known]] = {
    "home": _Known(read_path),
    "store": _Known(_address),
    "module": _Known(_modules, ()),
    "tz": _Known(_zone),
    "color": _Known(_one_of(Color), "auto"),
    "log.format": _Known(_one_of(LogFormat), "text"),
    "log.level": _Known(_one_of(LogLevel), "info"),
    "log.file": _Known(read_path),
    "retention.age": _Known(_duration, "30d"),
    "retention.keep": _Known(_count, 1000),
    "retention.tasks": _Known(_duration_or_zero, "24h"),
    "worker.processors": _Known(_count_or_zero, 100),
    "worker.queues": _Known(_listed(check_name), ()),
    "metrics.listen": _Known(_endpoint),
    "metrics.namespace": _Known(_namespace, "raptor"),
    "notify.per_minute": _Known(_count, 10),
    "http.allow": _Known(_listed(read_origin), ()),
    "http.networks": _Known(_listed(read_network), ()),
}
_SECTIONS: Final = {name.partition(".")[0] for name in _SETTINGS if "." in name}
_FLAGS: Final = {"module": "-m", "metrics.listen": "--metrics", "worker.processors": "--processors"}
_TABLES: Final = ("services", "schedulers", "queues")


def _variable(name: str) -> str:
    return "RAPTOR_" + name.upper().replace(".", "_")


def _flag(name: str) -> str:
    return _FLAGS.get(name) or "--" + name.replace(".", "-")


def _flags(flags: Mapping[str, Any], cwd: Path) -> _Layer:
    given = {name: value for name, value in flags.items() if value not in (None, (), [])}
    refuse_unknown(given, ("config", *_SETTINGS), "flags: ")
    return _Layer(given, cwd, _flag)


def _environment(environ: Mapping[str, str], cwd: Path) -> list[_Layer]:
    given = {name: environ[_variable(name)] for name in ("config", *_SETTINGS) if environ.get(_variable(name))}
    no_color = {"color": "never"} if environ.get("NO_COLOR") else {}
    return [_Layer(given, cwd, _variable), _Layer(no_color, cwd, lambda name: "NO_COLOR")]


def _project_file(layers: Iterable[_Layer], cwd: Path) -> tuple[Path | None, str]:
    for layer in layers:
        if "config" in layer.values:
            source = layer.source("config")
            return reading(source, read_path, layer.values["config"], layer.folder), source
    file = find_file(cwd)
    return file, "default" if file is None else "found"


def _project(file: Path | None, document: Mapping[str, Any]) -> list[_Layer]:
    if file is None:
        return []
    settings = _flatten({key: value for key, value in document.items() if key not in _TABLES}, file)
    beside = _Layer({"home": ".raptor"}, file.parent, lambda name: f"beside {file}")
    return [_Layer(settings, file.parent, lambda name: str(file), is_file=True), beside]


def _user(file: Path) -> list[_Layer]:
    if not os.path.exists(file):
        return []
    document = read_toml(file)
    for key in ("module", *_TABLES):
        if key in document:
            raise BadInput(f"{file}: {key}: belongs to a project: write it into its {FILE}")
    return [_Layer(_flatten(document, file), file.parent, lambda name: str(file), is_file=True)]


def _defaults(home: Path, folder: Path) -> _Layer:
    values = {name: known.default for name, known in _SETTINGS.items() if known.default is not None}
    return _Layer({**values, "home": home}, folder, lambda name: "default")


def _flatten(document: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """{"log": {"level": "info"}} -> {"log.level": "info"}; a key that nobody knows is refused."""
    tops = [*dict.fromkeys(name.partition(".")[0] for name in _SETTINGS), *_TABLES]
    refuse_unknown(document, tops, f"{file}: ")
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if key not in _SECTIONS:
            flat[key] = value
            continue
        known = [name.partition(".")[2] for name in _SETTINGS if name.startswith(f"{key}.")]
        section = read_table(value, f"{file}: {key}")
        refuse_unknown(section, known, f"{file}: {key}.")
        flat |= {f"{key}.{inner}": value for inner, value in section.items()}
    return flat


def _resolve(name: str, layers: Iterable[_Layer]) -> tuple[Setting, Path]:
    """The setting in force, and the folder of its layer. Every layer is read: a wrong value must not hide."""
    found: list[tuple[Setting, Path]] = []
    for layer in layers:
        if name in layer.values:
            value = reading(layer.where(name), _SETTINGS[name].read, layer.values[name], layer.folder)
            found.append((Setting(name, value, layer.source(name)), layer.folder))
    return found[0] if found else (Setting(name, None, "default"), Path())
