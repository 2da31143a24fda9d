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

from raptor.errors import BadInput, NoSuchName, did_you_mean
from raptor.rows import Definition, Scheduled
from raptor.service import (
    A_COMMAND,
    AN_ALARM,
    AN_ENVIRONMENT,
    OPTIONS,
    Catalogue,
    Given,
    Kind,
    Placed,
    Service,
    check_service,
    from_module,
    from_target,
    is_count,
    make_service,
    place,
    read_interval,
    read_options,
    reading,
    shaped,
    split_target,
)
from raptor.timing import check_cron, check_name, check_zone, parse_schedule, seconds, show_seconds

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
        if isinstance(value, tuple):
            value = ", ".join(msgspec.convert(self.value, list[str]))
        return "-" if value in (None, "") else str(value)


class Log(msgspec.Struct, frozen=True, kw_only=True):
    format: LogFormat = "text"
    level: LogLevel = "info"
    file: Path | None = None  # None: the terminal


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the ledger is kept."""

    age_s: float
    keep: int  # runs of each service


class Notify(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the calls of on_failure."""

    per_minute: int


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A service of raptor.toml: checked, its function not yet imported."""

    name: str
    place: str
    folder: Path
    fields: Mapping[str, Any]  # of Service, as far as the table gives them
    target: str | None = None  # module:function

    def service(self) -> Service:
        """The service. For a decorated function the table's options win over the decorator's."""
        if self.target is None:
            return make_service(self.name, self.fields, f"{self.place}.")
        try:
            base = from_target(self.target, self.folder)
        except NoSuchName as error:
            raise NoSuchName(error.what, error.name, error.known, f"{error.hint} for {self.place}.python") from None
        retimed = not _TIMES.isdisjoint(self.fields)
        cleared: dict[str, Any] = dict.fromkeys(_TIMES) if retimed else {}
        made = msgspec.structs.replace(base, **{**cleared, **self.fields, "name": self.name})
        check_service(made, f"{self.place}.")
        return made


_TIMES: Final = {"every_s", "cron", "timezone", "trigger"}


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was set, and what the project defines."""

    file: Path | None  # the raptor.toml
    home: Path  # the state directory
    modules: tuple[str, ...]
    module_folder: Path  # where their names are looked for first
    tz: str | None  # to show times in; None: the system's
    color: Color
    log: Log
    retention: Retention
    notify: Notify
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
            modules=value["module"],
            module_folder=found["module"][1],
            tz=value["tz"],
            color=value["color"],
            log=Log(format=value["log.format"], level=value["log.level"], file=value["log.file"]),
            retention=Retention(age_s=value["retention.age"], keep=value["retention.keep"]),
            notify=Notify(per_minute=value["notify.per_minute"]),
            services=() if file is None else _services(document, file, environ),
            schedulers=() if file is None else _schedulers(document, file),
            settings=(Setting("config", file, source), *(setting for setting, _ in found.values())),
        )

    def catalogue(self, services: Iterable[Given] = ()) -> Catalogue:
        """All services: those given, those of the modules, those of raptor.toml. Modules are imported here."""
        placed = [place(given, self.module_folder) for given in services]
        for module in self.modules:
            placed += from_module(module, self.module_folder)
        placed += [Placed(declared.service(), declared.place) for declared in self.services]
        catalogue = Catalogue(placed)
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


def expand(text: str, environ: Mapping[str, str]) -> str:
    """`${NAME}` -> the variable's value, `$$` -> `$`; any other `$` stands for itself."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        name = found["name"]
        if name is None:
            raise BadInput(f"{text!r}: after ${{ the name of a variable and }} are expected; $$ stands for a $")
        if name not in environ:
            raise BadInput(
                f"{text!r}: the variable {name} is not set; set it, or write $${{{name}}} for the text itself"
            )
        return environ[name]

    return _DOLLAR.sub(value, text)


_DOLLAR: Final = re.compile(r"\$\$|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)\})?")


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


def _path(value: Any, folder: Path) -> Path:
    text = shaped(str(value) if isinstance(value, Path) else value, str, "a path")
    if not text or "\0" in text:
        raise BadInput(f"a path is expected, not {value!r}")
    return Path(os.path.normpath(folder / os.path.expanduser(text)))


def _modules(value: Any, folder: Path) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else value
    names = shaped(listed, tuple[str, ...], "the name of a module, or a list of them,")
    if not all(name.strip() for name in names):
        raise BadInput(f"a module without a name: {value!r}")
    return tuple(name.strip() for name in names)


def _zone(value: Any, folder: Path) -> str:
    check_zone(value)
    return str(value)


def _duration(value: Any, folder: Path) -> float:
    return seconds(value)


def _count(value: Any, folder: Path) -> int:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else value
    if not is_count(number):
        raise BadInput(f"a whole number from 1 is expected, not {value!r}")
    return int(number)


def _one_of(choices: Any) -> Callable[[Any, Path], str]:
    words: tuple[str, ...] = get_args(choices)

    def read(value: Any, folder: Path) -> str:
        if not isinstance(value, str) or value not in words:
            raise BadInput(f"{', '.join(words[:-1])} or {words[-1]} is expected, not {value!r}")
        return value

    return read


_SETTINGS: Final[Mapping[str, _Known]] = {
    "home": _Known(_path),
    "module": _Known(_modules, ()),
    "tz": _Known(_zone),
    "color": _Known(_one_of(Color), "auto"),
    "log.format": _Known(_one_of(LogFormat), "text"),
    "log.level": _Known(_one_of(LogLevel), "info"),
    "log.file": _Known(_path),
    "retention.age": _Known(_duration, "30d"),
    "retention.keep": _Known(_count, 1000),
    "notify.per_minute": _Known(_count, 10),
}
_SECTIONS: Final = {name.partition(".")[0] for name in _SETTINGS if "." in name}
_TABLES: Final = ("services", "schedulers")


def _variable(name: str) -> str:
    return "RAPTOR_" + name.upper().replace(".", "_")


def _flag(name: str) -> str:
    return "-m" if name == "module" else "--" + name.replace(".", "-")


def _flags(flags: Mapping[str, Any], cwd: Path) -> _Layer:
    given = {name: value for name, value in flags.items() if value not in (None, (), [])}
    _refuse_unknown(given, ("config", *_SETTINGS), "flags: ")
    return _Layer(given, cwd, _flag)


def _environment(environ: Mapping[str, str], cwd: Path) -> list[_Layer]:
    given = {name: environ[_variable(name)] for name in ("config", *_SETTINGS) if environ.get(_variable(name))}
    no_color = {"color": "never"} if environ.get("NO_COLOR") else {}
    return [_Layer(given, cwd, _variable), _Layer(no_color, cwd, lambda name: "NO_COLOR")]


def _project_file(layers: Iterable[_Layer], cwd: Path) -> tuple[Path | None, str]:
    for layer in layers:
        if "config" in layer.values:
            source = layer.source("config")
            return reading(source, _path, layer.values["config"], layer.folder), source
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
    _refuse_unknown(document, tops, f"{file}: ")
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if key not in _SECTIONS:
            flat[key] = value
            continue
        known = [name.partition(".")[2] for name in _SETTINGS if name.startswith(f"{key}.")]
        section = _table(value, f"{file}: {key}")
        _refuse_unknown(section, known, f"{file}: {key}.")
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


def _refuse_unknown(keys: Iterable[str], known: Iterable[str], at: str) -> None:
    known = [*known]
    for key in keys:
        if key not in known:
            shown = key if re.fullmatch(r"[\w.-]{1,100}", key) else repr(key[:100])
            advice = did_you_mean(key, known) or f"there are {', '.join(known)}"
            raise BadInput(f"{at}{shown}: no such key: {advice}")


def _table(value: Any, where: str) -> dict[str, Any]:
    return reading(where, shaped, value, dict[str, Any], "a table")


def _services(document: Mapping[str, Any], file: Path, environ: Mapping[str, str]) -> tuple[Declared, ...]:
    tables = _table(document.get("services", {}), f"{file}: services")
    return tuple(_declare(name, table, file, environ) for name, table in tables.items())


def _declare(name: str, value: Any, file: Path, environ: Mapping[str, str]) -> Declared:
    reading(f"{file}: services", check_name, name)
    at = f"{file}: services.{name}"
    table = _table(value, at)
    kinds = get_args(Kind)
    _refuse_unknown(table, (*kinds, "env", "cwd", *OPTIONS), f"{at}.")
    if sum(kind in table for kind in kinds) != 1:
        raise BadInput(f'{at}: either command = ["program", "word"] or python = "module:function" is expected')
    fields = _fields(table, file.parent, environ, at)
    if "python" in table:
        reading(f"{at}.python", split_target, table["python"])
    make_service(name, fields, f"{at}.")
    return Declared(name=name, place=at, folder=file.parent, fields=fields, target=table.get("python"))


def _fields(table: Mapping[str, Any], folder: Path, environ: Mapping[str, str], at: str) -> dict[str, Any]:
    expanded: dict[str, Callable[[Any, Mapping[str, str]], Any]] = {
        "command": _words, "env": _env, "cwd": _text, "on_failure": _alarm
    }  # fmt: skip
    read = {key: reading(f"{at}.{key}", how, table[key], environ) for key, how in expanded.items() if key in table}
    fields = read_options({key: read.get(key, value) for key, value in table.items() if key in OPTIONS}, f"{at}.")
    if "command" in table:
        fields |= {"kind": "command", "argv": read["command"], "cwd": str(folder)}
    if "cwd" in table:
        fields["cwd"] = str(reading(f"{at}.cwd", _path, read["cwd"], folder))
    return fields | ({"env": read["env"]} if "env" in table else {})


def _text(value: Any, environ: Mapping[str, str]) -> str:
    return expand(shaped(value, str, "a text"), environ)


def _words(value: Any, environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(expand(word, environ) for word in shaped(value, tuple[str, ...], A_COMMAND))


def _alarm(value: Any, environ: Mapping[str, str]) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return expand(value, environ)
    return tuple(expand(word, environ) for word in shaped(value, tuple[str, ...], AN_ALARM))


def _env(value: Any, environ: Mapping[str, str]) -> dict[str, str]:
    env = shaped(value, dict[str, str], AN_ENVIRONMENT)
    return {name: expand(text, environ) for name, text in env.items()}


def _schedulers(document: Mapping[str, Any], file: Path) -> tuple[Definition, ...]:
    tables = _table(document.get("schedulers", {}), f"{file}: schedulers")
    return tuple(_define(name, table, file) for name, table in tables.items())


def _define(name: str, value: Any, file: Path) -> Definition:
    reading(f"{file}: schedulers", check_name, name)
    at = f"{file}: schedulers.{name}"
    table = _table(value, at)
    _refuse_unknown(table, ("interval", "services"), f"{at}.")
    example = 'a list such as ["backup", "report=24h"]'
    entries = reading(f"{at}.services", shaped, table.get("services", []), list[Any], example)
    services = tuple(_entry(entry, f"{at}.services") for entry in entries)
    seen = set[str]()
    for entry in services:
        if entry.name in seen:
            raise BadInput(f"{at}.services: {entry.name} stands there twice")
        seen.add(entry.name)
    interval = reading(f"{at}.interval", read_interval, table.get("interval", "auto"))
    return Definition(name=name, interval_s=interval, services=services)


def _entry(entry: Any, at: str) -> Scheduled:
    if isinstance(entry, str):
        return reading(at, parse_schedule, entry)
    table = _table(entry, at)
    _refuse_unknown(table, ("name", "every", "cron"), f"{at}.")
    if "every" in table and "cron" in table:
        raise BadInput(f"{at}: cron goes without every: give one of them")
    name = reading(f"{at}.name", shaped, table.get("name"), str, "the name of a service")
    reading(f"{at}.name", check_name, name)
    every = reading(f"{at}.every", seconds, table["every"]) if "every" in table else None
    if "cron" in table:
        reading(f"{at}.cron", check_cron, table["cron"])
    return Scheduled(name=name, every_s=every, cron=table.get("cron"))
