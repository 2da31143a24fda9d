"""Targets: durations, times, cron expressions, names, and addresses, as people write them."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from zlib import crc32
from zoneinfo import ZoneInfo

from raptor.address import read_network, read_origin, read_url
from raptor.catalogue import split_target
from raptor.cron import Cron, explain, normal_cron, zone_named
from raptor.declared import expand, read_path, refuse_unknown
from raptor.duration import LONGEST_S, SHORTEST_S, seconds, show_seconds
from raptor.endpoint import read_endpoint
from raptor.errors import BadInput
from raptor.lines import set_line
from raptor.masked import masked
from raptor.moment import moment, read_moment
from raptor.rows import Line
from raptor.state.opening import open_store
from raptor.state.postgres import address as postgres
from raptor.state.seal import seal, unseal
from raptor.timing import check_name, parse_schedule
from tests.fuzz.target import Target, must

NOW = 1_763_433_600.0
ZONES = tuple(map(ZoneInfo, ("UTC", "Europe/Sofia", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca")))


def duration(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    try:
        found = seconds(text)
    except BadInput:
        found = None
    if found is not None:
        must(SHORTEST_S <= found <= LONGEST_S, f"{found} is out of range")
        must(seconds(show_seconds(found)) == found, f"{found} is shown as {show_seconds(found)}")
    for setting in ("lease", "rate"):
        try:
            line = set_line(Line(name="q"), {setting: text})
        except BadInput:
            continue
        must(unseal("lines", "q", seal("lines", "q", line), Line) == line, f"{line} is not read back")


def time(data: bytes) -> None:
    zone = (None, UTC, *ZONES)[data[0] % 7] if data else UTC
    try:
        found = read_moment(data[1:].decode("utf-8", "surrogateescape"), NOW, zone)
    except BadInput:
        return
    moment(found, zone)  # whoever reads it will show it


def cron(data: bytes) -> None:
    zone = ZONES[data[0] % len(ZONES)] if data else ZONES[0]
    try:
        expression = normal_cron(data[1:].decode("utf-8", "surrogateescape"))
    except BadInput:
        return
    timing = Cron(expression, zone)
    now = NOW + (data[-1] << 18)
    explain(expression)
    first, second = timing.preview(now, 2)
    must(now <= first < second, f"{first} and {second} after {now}")
    must(timing.first(now) == first, "another first one")
    must(timing.after(slot=first, end=first, origin=first) == second, "another second one")
    must(timing.latest(first, second) == (second, 2), "another latest one")
    must(timing.last(second - 1) == first, "another last one")


def name(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    try:
        must(check_name(text) == text and text.isascii() and 0 < len(text) <= 100, f"the name {text!r}")
        must(not {"/", "\0", "\n", " "} & set(text) and text not in (".", ".."), f"the name {text!r}")
    except BadInput:
        pass
    for read in (parse_schedule, split_target, lambda text: expand(text, {"HOME": "/"})):
        try:
            read(text)
        except BadInput:
            pass
    try:
        must(read_path(text, Path("/srv")).is_absolute(), f"the path {text!r}")
    except BadInput:
        pass
    if crc32(data) % 512 == 0:  # slow: it looks for what is close
        try:
            refuse_unknown([text], ("every", "cron", "timeout"), "")
        except BadInput:
            pass
        try:
            zone_named(text)
        except BadInput:
            pass


def address(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for read in (read_url, read_origin, read_network, read_endpoint):
        try:
            again = read(text)
        except BadInput:
            continue
        str(again)
    must("s3kr1t" not in masked(f"postgresql://ann:s3kr1t@{text}"), "a password is shown")
    if text.startswith(("memory:", "sqlite:", "postgres")) or crc32(data) % 64 == 0:  # slow: it looks for what is close
        try:
            open_store(text)
        except BadInput:
            pass
    if text.startswith(("postgres:", "postgresql:")):
        try:
            found = postgres.read(text)
        except BadInput:
            return
        must(postgres.schema_of(text) == found.schema, "another schema")
        if "//" not in text.partition("//")[2]:  # else a path may look like a host
            must(postgres.read(found.url).url == found.url, f"{found.url!r} reads as another")


TARGETS = (
    Target(
        "duration",
        duration,
        (b"1h30m", b"500ms", b"PT1H30M", b"P1DT2.5S", b"P2W", b"1d 2h 3m 4.5s", b"100/s", b"5/10min", b"2w", b"0.001s"),
        (b"w", b"d", b"h", b"m", b"s", b"ms", b"PT", b"P", b"T", b"H", b"M", b"S", b"/", b".", b"min", b"1e5",
         b"\xc2\xb5s"),
    ),
    Target(
        "time",
        time,
        (
            b"\x0102:30", b"\x02yesterday 02:30", b"\x032026-11-18 02:30", b"\x042026-11-18T02:30:00Z", b"\x052h ago",
            b"\x00now", b"\x01tomorrow 23:59:59", b"\x022026-W46-3", b"\x01today 24:00", b"\x009999-12-31T23:59-23:59",
        ),
        (b"now", b"ago", b"today", b"yesterday", b"tomorrow", b"T", b"Z", b"+23:59", b"-00:00:01", b":", b"0001-01-01"),
    ),
    Target(
        "cron",
        cron,
        (
            b"\x0030 2 * * *", b"\x01*/5 * * * *", b"\x02@daily", b"\x0330 2 29 2 1", b"\x0415 30 2 * * 1-5",
            b"\x010 0 L * *", b"\x020 12 * * 5#3", b"\x030 0 1,15 JAN-MAR MON", b"\x001-10/3 * * * SUN",
            b"\x020 */2 * * *",
        ),
        (b"*", b"/", b"-", b",", b"L", b"#", b"W", b"?", b"MON", b"SUN-SAT", b"JAN", b"DEC", b"59", b"31", b"@",
         b"hourly"),
    ),
    Target(
        "name",
        name,
        (
            b"backup", b"report=24h", b"sync=cron 30 2 * * *", b"a=@daily", b"app.jobs:run", b"${HOME}/x", b"$$",
            b"../x",
            b"Europe/Sofia", b"evry",
        ),
        (b"=", b"cron ", b"@daily", b":", b".", b"..", b"/", b"$", b"${", b"}", b"~root", b"~", b"\0"),
    ),
    Target(
        "address",
        address,
        (
            b"postgresql://ann:secret@host:5432/db?schema=raptor&pooler=transaction&deep_sleep=false",
            b"sqlite:///srv/app",
            b"memory:", b"https://*.example.com:8443", b"http://[::1]:8080/x?y#z", b"10.0.0.0/8", b"127.0.0.1:9464",
            b"[::1]:9464", b"postgres:///db?host=/tmp", b"https://a@b/", b"postgresql://[::1]/",
        ),
        (b"://", b"?", b"&", b"=", b"@", b"[", b"]", b":", b"%", b"schema=", b"pooler=", b"deep_sleep=",
         b"postgresql", b"*."),
    ),
)  # fmt: skip
