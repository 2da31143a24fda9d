"""What services print inside the node: in their run's output where that was asked for, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import io
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raptor.clock import Clock, SystemClock, VirtualClock
from raptor.runners.printed import OUTPUT, leading_prints
from raptor.service import Service
from raptor.task import Outcome
from tests.unit.runs import DEADLINE_S, Trial, run


class Streams:
    """The standard streams of a node."""

    def __init__(self) -> None:
        self._out, self._err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))

    @property
    def out(self) -> str:
        return _text(self._out)

    @property
    def err(self) -> str:
        return _text(self._err)

    @contextmanager
    def standing_in(self) -> Generator[None]:
        # Within the test: pytest puts its own streams back between a fixture and its test.
        with contextlib.redirect_stdout(self._out), contextlib.redirect_stderr(self._err):
            yield


def _text(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


@contextmanager
def led() -> Generator[Streams]:
    node = Streams()
    with node.standing_in(), leading_prints():
        yield node


def service(function: Callable[..., Any], **options: Any) -> Service:
    return Service(name="s", function=function, **options)


async def test_what_a_thread_prints_is_in_the_output_of_its_run(system_clock: Clock, tmp_path: Path) -> None:
    def work() -> None:
        print("row", 7)
        print("odd", file=sys.stderr)
        sys.stdout.writelines(["two\n", "lines\n"])
        sys.stdout.buffer.write(b"bytes\n")
        sys.stdout.flush()

    with led() as node:
        result = await run(system_clock, service(work), tmp_path / "s.log")
    assert result.tail == "row 7\nodd\ntwo\nlines\nbytes\n"
    assert (tmp_path / "s.log").read_text().endswith("Z\nrow 7\nodd\ntwo\nlines\nbytes\n")
    assert (node.out, node.err) == ("", "")


async def test_runs_at_the_same_time_do_not_mix(system_clock: Clock) -> None:
    """Two on the loop that take turns, and one in a thread that waits for both."""
    first, second = asyncio.Event(), asyncio.Event()
    both = threading.Event()

    async def one() -> None:
        print("one begins")
        first.set()
        await second.wait()
        print("one ends")

    async def two() -> None:
        await first.wait()
        print("two")
        second.set()
        both.set()

    def three() -> None:
        assert both.wait(DEADLINE_S)
        print("three")

    with led() as node:
        results = await asyncio.gather(*(run(system_clock, service(work)) for work in (one, two, three)))
        print("the program itself")
    assert [result.tail for result in results] == ["one begins\none ends\n", "two\n", "three\n"]
    assert (node.out, node.err) == ("the program itself\n", "")


async def test_the_tasks_of_a_run_and_to_thread_belong_to_it(system_clock: Clock) -> None:
    async def work() -> None:
        await asyncio.gather(asyncio.to_thread(print, "to_thread"))
        await asyncio.create_task(helper())

    async def helper() -> None:
        print("task")

    with led() as node:
        assert (await run(system_clock, service(work))).tail == "to_thread\ntask\n"
    assert node.out == ""


async def test_a_thread_of_the_services_own_prints_for_the_node(system_clock: Clock) -> None:
    def work() -> None:
        other = threading.Thread(target=print, args=("from afar",))
        other.start()
        other.join()
        print("from here")

    with led() as node:
        assert (await run(system_clock, service(work))).tail == "from here\n"
    assert node.out == "from afar\n"


async def test_what_outlives_its_run_prints_for_the_node(system_clock: Clock) -> None:
    over = asyncio.Event()
    left: list[asyncio.Task[None]] = []

    async def later() -> None:
        await over.wait()
        print("late")

    async def work() -> None:
        left.append(asyncio.create_task(later()))
        print("in time")

    with led() as node:
        assert (await run(system_clock, service(work))).tail == "in time\n"
        over.set()
        await left[0]
    assert node.out == "late\n"


@pytest.mark.parametrize("kind", [SystemClock, VirtualClock])
def test_nothing_of_a_run_is_left_in_the_context_of_whoever_ran_it(kind: Callable[[], Clock]) -> None:
    clock = kind()

    async def program() -> None:
        await run(clock, service(lambda: print("inside")))
        assert OUTPUT.get() is None
        print("outside")

    with led() as node:
        clock.run(program)
    assert node.out == "outside\n"


@pytest.mark.parametrize("kind", [SystemClock, VirtualClock])
def test_offloaded_work_sees_the_context_and_cannot_change_it(kind: Callable[[], Clock]) -> None:
    clock, name = kind(), contextvars.ContextVar("name", default="nobody")

    def work() -> str:
        seen = name.get()
        name.set("changed")
        return seen

    async def program() -> None:
        name.set("somebody")
        assert await clock.offload(work) == "somebody"
        assert name.get() == "somebody"

    clock.run(program)


async def test_a_program_that_did_not_ask_keeps_its_streams(system_clock: Clock) -> None:
    def work() -> None:
        print("as ever")

    node = Streams()
    with node.standing_in():
        before = sys.stdout, sys.stderr
        result = await run(system_clock, service(work))
        assert (sys.stdout, sys.stderr) == before
    assert (result.tail, node.out) == ("", "as ever\n")


def test_the_streams_are_put_back_unless_somebody_replaced_them(monkeypatch: pytest.MonkeyPatch) -> None:
    real, other = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", real)
    with leading_prints():
        assert sys.stdout is not real
    assert sys.stdout is real
    with leading_prints():
        sys.stdout = other
    assert sys.stdout is other


def test_a_process_without_a_stream_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with leading_prints():
        assert sys.stdout is None


async def test_a_handler_of_logging_made_before_a_run_follows_the_runs(system_clock: Clock) -> None:
    log = logging.Logger("mine")

    async def work() -> None:
        log.info("inside")

    with led() as node:
        log.addHandler(logging.StreamHandler(sys.stderr))
        assert (await run(system_clock, service(work))).tail == "inside\n"
        log.info("outside")
    assert node.err == "outside\n"


async def test_to_a_run_its_stream_is_no_terminal_and_cannot_be_closed(system_clock: Clock) -> None:
    def work() -> str:
        sys.stdout.close()
        try:
            sys.stdout.write(b"bytes")  # type: ignore[arg-type]
        except TypeError as error:
            return f"{sys.stdout.isatty()} {sys.stdout.encoding} {error}"
        return "bytes are no text"

    with led() as node:
        result = await run(system_clock, service(work))
        print("still open")
    assert result.info == "False utf-8 write() argument must be str, not bytes"
    assert node.out == "still open\n"


async def test_prints_without_end_are_bounded_like_any_output(system_clock: Clock, tmp_path: Path) -> None:
    def work() -> None:
        for number in range(3000):
            print(f"{number:0999}")
        print("the end")

    trial = Trial(system_clock, service(work), tmp_path / "s.log")
    with led():
        result = await trial.run()
    assert (result.outcome, result.tail.endswith("the end\n"), len(result.tail)) == (Outcome.OK, True, 4096)
    assert trial.log.total == 3_000_008
    assert (tmp_path / "s.log").stat().st_size <= 1024 * 1024


def test_importing_raptor_replaces_no_stream() -> None:
    script = "import sys; o, e = sys.stdout, sys.stderr; import raptor, raptor.runners.printed, raptor.runners.python; "
    done = subprocess.run(
        [sys.executable, "-c", f"{script}print(sys.stdout is o and sys.stderr is e)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"


class Complaint(logging.StreamHandler[Any]):
    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.came = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        self.came.set()


async def test_what_the_writing_of_the_file_says_is_no_output_of_the_run(system_clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "logs").touch()  # where a folder should be
    log = logging.getLogger("raptor.runners")

    def work() -> None:
        print("printed")
        assert complaint.came.wait(DEADLINE_S)

    with led() as node:
        complaint = Complaint()
        log.addHandler(complaint)
        try:
            result = await run(system_clock, service(work), tmp_path / "logs" / "s.log")
        finally:
            log.removeHandler(complaint)
    assert (result.info, result.tail) == ("", "printed\n")
    assert node.err.startswith("the output of a run is not kept")
