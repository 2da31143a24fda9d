"""Target: raptor.toml, as text that is damaged and as a document of keys that are known and values that are not."""

from __future__ import annotations

from pathlib import Path

from raptor.config import _SETTINGS, Config
from raptor.errors import RaptorError
from raptor.lines import SETTINGS as LINE_SETTINGS
from raptor.service import OPTIONS
from tests.fuzz.draw import Draw
from tests.fuzz.target import Target, scratch

NOWHERE = Path("/nowhere/none")
SAMPLE = b"""\
module = ["app.jobs"]
tz = "Europe/Sofia"
store = "postgresql://ann@host/db"
[log]
level = "info"
[retention]
age = "30d"
keep = 10
[worker]
queues = ["default"]
[http]
allow = ["https://api.example.com"]
networks = ["10.0.0.0/8"]
[services.backup]
command = ["backup", "--all", "${HOME}"]
every = "1h30m"
env = {A = "1"}
[services.report]
python = "app:report"
cron = "30 2 * * *"
timezone = "UTC"
[services.call]
http = {url = "https://api.example.com/x", method = "POST"}
[services.tell]
publish = {url = "amqp://host/", routing_key = "x"}
[schedulers.main]
interval = "10s"
services = ["backup", "report=24h", {name = "call", cron = "@daily"}]
[queues.mail]
rate = "100/s"
concurrency = 5
lease = "60s"
max_attempts = "unlimited"
"""
VALUES = (
    "1", "0", "-1", "99999999999999999999999", "1.5", "nan", "inf", "true", '""', '"x"', '"10s"', '"0"', '"none"',
    '"auto"',
    '"unlimited"', "[]", "[[]]", "[1]", '["x"]', '["a", 1]', "{}", "{a = 1}", '{url = "https://x/"}', '{name = "x"}',
    "2026-01-01", "02:30:00", "2026-01-01T00:00:00Z", '"* * * * *"', '"@daily"', '"UTC"', '"app:run"', '"https://x"',
    '"${HOME}"', '"${NO}"', '"../x"', '"\\u0000"', '"postgresql://h/d"', '"127.0.0.1:80"', '"10.0.0.0/8"', '"5/10min"',
    '["echo", "x"]', '{A = "1"}', '"skip"', '"once"', '"slot"', '"grid"', '"msgpack"', '"info"',
)  # fmt: skip
SECTIONS = ("log", "retention", "worker", "metrics", "notify", "http")
KEYS = {
    "": [name for name in _SETTINGS if "." not in name],
    "services.x": [*OPTIONS, "command", "python", "http", "publish", "env", "cwd"],
    "schedulers.m": ["interval", "services"],
    "queues.q": list(LINE_SETTINGS),
    **{one: [name.partition(".")[2] for name in _SETTINGS if name.startswith(f"{one}.")] for one in SECTIONS},
}
VARIABLES = tuple("RAPTOR_" + name.upper().replace(".", "_") for name in _SETTINGS)


def _document(draw: Draw) -> bytes:
    lines: list[str] = []
    for section in sorted({draw.pick((*KEYS, "services.x")) for _ in range(1 + draw.below(4))}):
        lines += [f"[{section}]"] if section else []
        keys = dict.fromkeys(draw.pick(KEYS[section]) for _ in range(1 + draw.below(4)))
        if section == "services.x" and draw.below(4):
            lines.append('command = ["echo"]')
            keys.pop("command", None)
        lines += [f"{key} = {draw.pick(VALUES)}" for key in keys]
    return "\n".join(lines).encode()


def toml(data: bytes) -> None:
    environ = {"HOME": "/home/ann"}
    if data[:1] >= b"\xc0":
        draw = Draw(data[1:])
        environ[draw.pick(VARIABLES)] = draw.text().replace("\0", "")
        text = b""
    else:
        text = _document(Draw(data[1:])) if data[:1] >= b"\x40" else data[1:]
    (scratch() / "raptor.toml").write_bytes(text)
    try:
        config = Config.load(
            {"config": str(scratch() / "raptor.toml")},
            environ=environ,
            cwd=Path("/"),
            user_file=NOWHERE,
            user_state=NOWHERE,
        )
    except RaptorError:
        return
    for setting in config.settings:
        str(setting.text)
    for declared in config.services:
        if declared.target is None:
            declared.service()


TARGETS = (
    Target(
        "toml",
        toml,
        (
            b"\x00" + SAMPLE, *(b"\x00" + part for part in SAMPLE.split(b"\n[")), *(b"\x40" + bytes(range(n, 90,
            7)) for n in range(30)),
            *(b"\xc0" + bytes([n, 0, 5]) + b"1h30m" for n in range(len(VARIABLES))),
        ),
        (b"[services.x]\n", b"[schedulers.m]\n", b"[queues.q]\n", b"every = ", b"= {", b'"""', b"[[", b"inf", b"\n",
         b"=", b'"', b"1e9", b"a.b.c"),
    ),
)  # fmt: skip
