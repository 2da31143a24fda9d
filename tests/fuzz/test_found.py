"""What fuzzing found, one test for each cause."""

from __future__ import annotations

import sqlite3
from datetime import UTC
from pathlib import Path
from typing import Any

import msgspec
import pytest

from raptor import Node, service
from raptor.client import Refused, read_answer
from raptor.clock import Clock
from raptor.cron import normal_cron, parse_cron
from raptor.errors import BadInput, RefusedState
from raptor.moment import read_moment
from raptor.rows import Definition
from raptor.state.base import Query, Want
from raptor.state.files import FileStore
from raptor.state.home import Home
from raptor.state.postgres.address import read
from raptor.state.postgres.tables import read_record
from raptor.state.salvage import Pages
from raptor.state.seal import BrokenSeal, _crc, unseal
from raptor.task import Task
from tests.fuzz.frames import bench

NOW = 1_763_433_600.0


@service(codec="msgpack")
async def anything(data: Any) -> None: ...


@pytest.mark.parametrize(
    ("written", "meant"),
    [("6-6/3 * * * *", "6 * * * *"), ("0 22-22/1 * * *", "0 22 * * *"), ("0 0 * * MON-MON/2", "0 0 * * MON")],
)
def test_a_range_of_one_with_a_step_is_that_one(written: str, meant: str) -> None:
    assert parse_cron(written, "UTC").preview(NOW, 5) == parse_cron(meant, "UTC").preview(NOW, 5)


@pytest.mark.parametrize("expression", ["1-11/3 * * * *", "11-12/1 * * * *", "16-56/10 * * * *"])
def test_a_range_of_more_keeps_its_step(expression: str) -> None:
    assert normal_cron(expression) == expression


@pytest.mark.parametrize("text", ["9999-12-31T23:59-23:59", "0001-01-01T00:00+23:59"])
def test_a_time_that_no_calendar_shows_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not understood"):
        read_moment(text, NOW, UTC)


@pytest.mark.parametrize("text", ["postgresql://[x:1]/db", "postgresql://[//[::1]/", "postgresql://h/\udce5"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="no address"):
        read(text)


@pytest.mark.parametrize("text", ["postgres:///\n/", "postgresql://h/d\tb", " postgresql://h/db\r"])
def test_an_address_with_a_control_character_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="take them out"):
        read(text)


def test_a_refused_address_does_not_show_its_password() -> None:
    with pytest.raises(BadInput) as refused:
        read("mysql://ann:s3kr1t@host/db")
    assert "s3kr1t" not in str(refused.value)


@pytest.mark.parametrize(
    "line",
    [b"", b'{"jsonrpc":"2.0","id":1,"res', b"0\n", b'"error"\n', b"\xff\n", b"[" * 9999 + b"\n", b'{"result":1}\n',
     b'{"error":{"message":"no","data":{}}}\n'],
)  # fmt: skip
def test_an_answer_that_is_cut_short_or_nonsense_is_a_refusal(line: bytes) -> None:
    with pytest.raises(Refused):
        read_answer(line)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"id":99999999999999999999999,"method":"status"}', -32700),
        (b'{"method":"status","params":{"x":' + b"[" * 9999, -32700),
        (b'{"method":"\xff"}', -32700),
        (b'{"method":"schedule","params":{"name":"main","services":null}}', -32000),
        (b'{"method":"tasks","params":{"limit":"many"}}', -32000),
        (b'{"method":"task","params":{"id":99999999999999999999999}}', -32000),
        (b'{"method":"next","params":{"target":"ping","n":1000000000}}', -32000),
        (b'{"method":"status","params":{"name":["main"]}}', -32000),
        (b'{"method":"put","params":{"service":"ping","queue":5}}', -32000),
        (b'{"method":"put","params":{"service":"ping","queue":[1]}}', -32000),
        (b'{"method":"put","params":{"service":"ping","cron":"@daily","timezone":5}}', -32000),
    ],
)
def test_a_request_of_other_kinds_of_values_is_refused_and_answered(line: bytes, code: int) -> None:
    here = bench()
    answer = msgspec.json.decode(here.loop.run_until_complete(here.control()._answer(line)))
    assert answer["error"]["code"] == code
    assert answer["error"]["data"]["exit_code"] == 2


@pytest.mark.parametrize("text", ['{"name":', "[" * 9999, '{"name":"\udcff"}', '{"name":1}'])
def test_a_record_that_makes_no_sense_is_refused_whatever_its_checksum_says(text: str) -> None:
    body = text[:-1].encode("utf-8", "surrogateescape") + b"}"
    crc = _crc("definitions", "k", body)
    with pytest.raises(BrokenSeal):
        unseal("definitions", "k", f'{text[:-1]},"crc":"{crc:08x}"}}', Definition)
    with pytest.raises(RefusedState, match="not a Definition"):
        read_record(text, Definition, "record")


def damage(home: Path, statement: str) -> None:
    connection = sqlite3.connect(home / "raptor.sqlite")
    with connection:
        connection.execute(statement)
    connection.close()


async def test_a_task_whose_data_became_a_number_is_given_as_damaged_and_holds_up_nobody(
    tmp_path: Path, system_clock: Clock
) -> None:
    home = Home.open(tmp_path / "state", system_clock)
    store = FileStore(home)
    try:
        await store.put([Task(service="s", due=NOW, data="1"), Task(service="s", due=NOW, data="2")], now=NOW)
        damage(home.path, "UPDATE task SET data = 2.5 WHERE id = 1")
        taken = await store.take([Want(queue="default", room=5)], owner="me", now=NOW)
        assert [(task.id, task.reason, task.data) for task in taken.tasks] == [(1, "damaged", "null"), (2, "", "2")]
    finally:
        await store.close()
        home.close()


async def test_a_task_in_no_state_that_there_is_is_told_as_damage(tmp_path: Path, system_clock: Clock) -> None:
    home = Home.open(tmp_path / "state", system_clock)
    store = FileStore(home)
    try:
        await store.put([Task(service="s", due=NOW)], now=NOW)
        damage(home.path, "UPDATE task SET state = 'rfady'")
        for asked in (store.find(Query()), store.cancel([1], now=NOW, reason="")):
            with pytest.raises(RefusedState, match="in no state that there is") as refused:
                await asked
            assert refused.value.kind == "damaged"
    finally:
        await store.close()
        home.close()


async def test_data_that_json_has_no_word_for_are_shown_all_the_same(tmp_path: Path, system_clock: Clock) -> None:
    async with Node(tmp_path / "state", services=[anything], clock=system_clock, listen=False) as node:
        await node.call("queue", name="default", paused=True)
        store = node.site.workshop.timetable.store
        (placed,) = await store.put([Task(service="anything", due=NOW, data=b"\xd6\xfe\x00\x00\x00\x01")], now=NOW)
        shown = await node.call("task", id=placed.id)
        msgspec.json.encode(shown)


@pytest.mark.timeout(5)
def test_a_page_that_was_cut_off_behind_its_own_number_is_no_endless_cell(tmp_path: Path) -> None:
    """The rest of a cell of 600 bytes is on page 2, of which there are four bytes: the page after it is page 2."""
    first = bytearray(512)
    first[16:18] = (512).to_bytes(2, "big")
    first[100:110] = bytes([13, 0, 0, 0, 1, 1, 44, 0, 1, 44])
    first[300:303] = b"\x84\x58\x01"
    first[395:399] = (2).to_bytes(4, "big")
    (tmp_path / "x").write_bytes(first + (2).to_bytes(4, "big"))
    assert list(Pages.read(tmp_path / "x").cells()) == []
