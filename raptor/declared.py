"""What raptor.toml defines: its tables of services and schedulers, checked and not yet imported."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from raptor.calls import Call, Message, read_call, read_message
from raptor.catalogue import from_target, split_target
from raptor.errors import BadInput, NoSuchName, did_you_mean
from raptor.lines import set_line
from raptor.rows import Definition, Line, Scheduled
from raptor.service import (
    A_COMMAND,
    AN_ALARM,
    AN_ENVIRONMENT,
    OPTIONS,
    Kind,
    Service,
    check_service,
    make_service,
    read_interval,
    read_options,
    reading,
    shaped,
)
from raptor.timing import check_cron, check_name, parse_schedule, seconds


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
_WORK: Final = (
    'command = ["program", "word"], python = "module:function", http = {url = "https://..."}'
    ' or publish = {url = "amqp://...", routing_key = "..."}'
)


def services(document: Mapping[str, Any], file: Path, environ: Mapping[str, str]) -> tuple[Declared, ...]:
    tables = read_table(document.get("services", {}), f"{file}: services")
    return tuple(_declare(name, table, file, environ) for name, table in tables.items())


def _declare(name: str, value: Any, file: Path, environ: Mapping[str, str]) -> Declared:
    reading(f"{file}: services", check_name, name)
    at = f"{file}: services.{name}"
    table = read_table(value, at)
    kinds = get_args(Kind)
    refuse_unknown(table, (*kinds, "env", "cwd", *OPTIONS), f"{at}.")
    if sum(kind in table for kind in kinds) != 1:
        raise BadInput(f"{at}: one of {_WORK} is expected")
    fields = _fields(table, file.parent, environ, at)
    if "python" in table:
        reading(f"{at}.python", split_target, table["python"])
    make_service(name, fields, f"{at}.")
    return Declared(name=name, place=at, folder=file.parent, fields=fields, target=table.get("python"))


def _fields(table: Mapping[str, Any], folder: Path, environ: Mapping[str, str], at: str) -> dict[str, Any]:
    expanded: dict[str, Callable[[Any, Mapping[str, str]], Any]] = {
        "command": _words, "env": _env, "cwd": _text, "on_failure": _alarm, "http": _call, "publish": _message
    }  # fmt: skip
    read = {key: reading(f"{at}.{key}", how, table[key], environ) for key, how in expanded.items() if key in table}
    fields = read_options({key: read.get(key, value) for key, value in table.items() if key in OPTIONS}, f"{at}.")
    if "command" in table:
        fields |= {"kind": "command", "argv": read["command"], "cwd": str(folder)}
    for kind in ("http", "publish"):
        if kind in table:
            fields |= {"kind": kind, kind: read[kind]}
    if "cwd" in table:
        fields["cwd"] = str(reading(f"{at}.cwd", read_path, read["cwd"], folder))
    return fields | ({"env": read["env"]} if "env" in table else {})


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


def read_path(value: Any, folder: Path) -> Path:
    text = shaped(str(value) if isinstance(value, Path) else value, str, "a path")
    if not text or "\0" in text:
        raise BadInput(f"a path is expected, not {value!r}")
    return Path(os.path.normpath(folder / os.path.expanduser(text)))


def refuse_unknown(keys: Iterable[str], known: Iterable[str], at: str) -> None:
    known = [*known]
    for key in keys:
        if key not in known:
            shown = key if re.fullmatch(r"[\w.-]{1,100}", key) else repr(key[:100])
            advice = did_you_mean(key, known) or f"there are {', '.join(known)}"
            raise BadInput(f"{at}{shown}: no such key: {advice}")


def read_table(value: Any, where: str) -> dict[str, Any]:
    return reading(where, shaped, value, dict[str, Any], "a table")


def _text(value: Any, environ: Mapping[str, str]) -> str:
    return expand(shaped(value, str, "a text"), environ)


def _words(value: Any, environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(expand(word, environ) for word in shaped(value, tuple[str, ...], A_COMMAND))


def _alarm(value: Any, environ: Mapping[str, str]) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return expand(value, environ)
    return tuple(expand(word, environ) for word in shaped(value, tuple[str, ...], AN_ALARM))


def _call(value: Any, environ: Mapping[str, str]) -> Call:
    return read_call({"url": value} if isinstance(value, str) else value, lambda text: expand(text, environ))


def _message(value: Any, environ: Mapping[str, str]) -> Message:
    return read_message(value, lambda text: expand(text, environ))


def _env(value: Any, environ: Mapping[str, str]) -> dict[str, str]:
    env = shaped(value, dict[str, str], AN_ENVIRONMENT)
    return {name: expand(text, environ) for name, text in env.items()}


def schedulers(document: Mapping[str, Any], file: Path) -> tuple[Definition, ...]:
    tables = read_table(document.get("schedulers", {}), f"{file}: schedulers")
    return tuple(_define(name, table, file) for name, table in tables.items())


def _define(name: str, value: Any, file: Path) -> Definition:
    reading(f"{file}: schedulers", check_name, name)
    at = f"{file}: schedulers.{name}"
    table = read_table(value, at)
    refuse_unknown(table, ("interval", "services"), f"{at}.")
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


def queues(document: Mapping[str, Any], file: Path) -> tuple[Line, ...]:
    tables = read_table(document.get("queues", {}), f"{file}: queues")
    for name in tables:
        reading(f"{file}: queues", check_name, name)
    return tuple(
        reading(f"{file}: queues.{name}", set_line, Line(name=name), read_table(table, f"{file}: queues.{name}"))
        for name, table in tables.items()
    )


def _entry(entry: Any, at: str) -> Scheduled:
    if isinstance(entry, str):
        return reading(at, parse_schedule, entry)
    table = read_table(entry, at)
    refuse_unknown(table, ("name", "every", "cron"), f"{at}.")
    if "every" in table and "cron" in table:
        raise BadInput(f"{at}: cron goes without every: give one of them")
    name = reading(f"{at}.name", shaped, table.get("name"), str, "the name of a service")
    reading(f"{at}.name", check_name, name)
    every = reading(f"{at}.every", seconds, table["every"]) if "every" in table else None
    if "cron" in table:
        reading(f"{at}.cron", check_cron, table["cron"])
    return Scheduled(name=name, every_s=every, cron=table.get("cron"))
