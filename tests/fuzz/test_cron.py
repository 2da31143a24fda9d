"""Cron beside the scanner: windows round changes of the clock, in zones that change it in odd ways."""

from __future__ import annotations

from itertools import islice
from random import Random
from zoneinfo import ZoneInfo

import pytest

from tests.fuzz import dst, scanner

ODD = (
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
    "America/Sao_Paulo",
    "Asia/Pyongyang",
    "Europe/Dublin",
)


def test_cron_agrees_with_the_scanner_where_the_clock_changes() -> None:
    for data in islice(dst.inputs(6), 250):
        dst.dst(data)


@pytest.mark.parametrize("zone", ODD)
def test_cron_agrees_with_the_scanner_in_odd_zones(zone: str) -> None:
    random = Random(zone)
    for change in random.sample(changes := scanner.changes(ZoneInfo(zone)), min(8, len(changes))):
        for _ in range(5):
            dst.dst(f"{zone} {change} {dst.expression(random)}".encode())
