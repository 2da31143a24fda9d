"""Functions in a process of their own: how they are found, what they get, what comes back."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import raptor.runners
from raptor.clock import Clock
from raptor.runners import Progress
from raptor.runners.functions import Name, find, name_of
from raptor.runners.mail import LONGEST, Answer, Mail
from raptor.runners.output import Capture
from raptor.service import Service
from raptor.task import Outcome
from tests.system.hostile import functions
from tests.unit.runs import DEADLINE_S, Trial, left_behind, run

ROOT = Path(__file__).resolve().parents[2]


def isolated(function: Any, **options: Any) -> Service:
    return Service(name=function.__name__, function=function, isolate=True, **options)


async def test_an_isolated_function_has_its_context_and_its_output(system_clock: Clock, tmp_path: Path) -> None:
    told: list[Progress] = []
    facts = {"attempt": 3, "key": "k", "data": {"rows": [1, "é"]}, "on_progress": told.append}
    result = await run(system_clock, isolated(functions.hello), tmp_path / "hello.log", **facts)
    assert (result.outcome, result.error, result.died) == (Outcome.OK, None, False)
    assert result.info == '{"attempt": 3, "data": {"rows": [1, "é"]}, "key": "k", "service": "hello"}'
    assert result.tail == "printed\nINFO logged\n"
    assert (tmp_path / "hello.log").read_text().endswith("Z\nprinted\nINFO logged\n")
    assert told == [Progress(1, 2, "half\\nway")]


async def test_an_async_one_has_a_loop_of_its_own(system_clock: Clock) -> None:
    assert (await run(system_clock, isolated(functions.hello_async), run_id="r7-unique")).info == "async r7-unique"


async def test_a_sync_function_with_a_timeout_is_isolated(system_clock: Clock) -> None:
    service = Service(name="hang", function=functions.hang, timeout_s=3)
    trial = Trial(system_clock, service)
    result = await trial.run()
    assert (result.outcome, result.error, result.died) == (Outcome.TIMED_OUT, "timed out after 3 s", False)
    assert left_behind(trial.context.run_id) == {}


async def test_the_environment_tells_of_the_run(system_clock: Clock) -> None:
    result = await run(system_clock, isolated(functions.environment), attempt=2, planned=0.0, key="k")
    assert result.info == '["environment", "2", "1970-01-01T00:00:00Z", "k"]'


async def test_it_has_a_folder_a_session_and_nothing_to_read(system_clock: Clock, tmp_path: Path) -> None:
    result = await run(system_clock, isolated(functions.place, cwd=str(tmp_path)))
    assert result.info == f'["{tmp_path}", true, "", false]'


async def test_an_error_comes_back_with_the_traceback_of_the_function(system_clock: Clock) -> None:
    result = await run(system_clock, isolated(functions.raise_named), data="Odd")
    assert (result.outcome, result.info, result.died) == (Outcome.FAILED, "Odd", False)
    assert result.error is not None
    first = result.error.splitlines()[1]
    assert "hostile/functions.py" in first
    assert first.endswith("in raise_named")


async def test_data_that_is_not_json_is_refused(system_clock: Clock) -> None:
    result = await run(system_clock, isolated(functions.hello), data=object())
    assert (result.outcome, result.died) == (Outcome.FAILED, False)
    assert result.info.startswith("its data cannot be sent to another process: Encoding objects of type object")


@pytest.mark.parametrize(
    ("options", "said"),
    [({"cwd": "/no/such/folder"}, "/no/such/folder"), ({"env": {"a=b": ""}}, "illegal environment")],
)
async def test_a_process_that_cannot_be_started_has_failed(system_clock: Clock, options: Any, said: str) -> None:
    before = os.listdir("/proc/self/fd")
    result = await run(system_clock, isolated(functions.hello, **options))
    assert (result.outcome, said in (result.error or "")) == (Outcome.FAILED, True)
    assert os.listdir("/proc/self/fd") == before


async def test_an_interrupt_ends_it_and_is_raised_again(system_clock: Clock) -> None:
    trial = Trial(system_clock, isolated(functions.hang_async))
    task = trial.start()
    await trial.log.hears("hanging")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left_behind(trial.context.run_id) == {}


async def test_one_that_leaves_a_thread_behind_keeps_its_result(system_clock: Clock) -> None:
    trial = Trial(system_clock, isolated(functions.leave_thread))
    result = await trial.run()
    assert (result.outcome, result.info) == (Outcome.OK, "returned")
    assert left_behind(trial.context.run_id) == {}


async def test_a_fork_that_comes_back_does_not_answer_for_its_parent(system_clock: Clock) -> None:
    assert (await run(system_clock, isolated(functions.fork_and_return))).info == "parent"


async def test_an_answer_that_was_not_read_before_the_end_is_read_then(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Capture):
        def __init__(self, fd: int, take: Any) -> None:
            super().__init__(fd, take)
            asyncio.get_running_loop().remove_reader(fd)

    monkeypatch.setattr("raptor.runners.process.Capture", Late)
    assert (await run(system_clock, isolated(functions.hello_async))).outcome is Outcome.OK


def write_module(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    try:
        return importlib.import_module(name)
    finally:
        monkeypatch.delitem(sys.modules, name, raising=False)


async def test_a_module_of_the_nodes_path_is_found(
    system_clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def work():\n    return __name__, __file__"
    module = write_module(tmp_path, "raptor_test_services", text, monkeypatch)
    monkeypatch.setitem(sys.modules, "raptor_test_services", module)
    result = await run(system_clock, isolated(module.work))
    assert result.info == f'["raptor_test_services", "{tmp_path}/raptor_test_services.py"]'


async def test_a_module_that_no_import_finds_is_loaded_from_its_file(
    system_clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As by a tool that loads `services.py` of a folder, while the path holds another of that name.
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    module = write_module(tmp_path / "a", "raptor_test_twins", "def work():\n    return 'a'", monkeypatch)
    monkeypatch.setitem(sys.modules, "raptor_test_twins", module)
    (tmp_path / "b/raptor_test_twins.py").write_text("def work():\n    return 'b'")
    monkeypatch.syspath_prepend(tmp_path / "b")
    assert (await run(system_clock, isolated(module.work))).info == "a"
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not each.startswith(str(tmp_path))])
    assert (await run(system_clock, isolated(module.work))).info == "a"


async def test_a_module_that_fails_to_import_is_a_failed_result(
    system_clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os\nif 'RAPTOR_RUN_ID' in os.environ:\n    raise SystemExit('not here')\ndef work(): ..."
    module = write_module(tmp_path, "raptor_test_broken", text, monkeypatch)
    monkeypatch.setitem(sys.modules, "raptor_test_broken", module)
    result = await run(system_clock, isolated(module.work))
    assert (result.outcome, result.info, result.died) == (Outcome.FAILED, "SystemExit: not here", False)


@pytest.mark.parametrize("words", [("tests/system/hostile/script.py",), ("-m", "tests.system.hostile.script")])
def test_a_function_of_the_program_itself_is_found(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    names = {"tests/system/hostile/script.py": "__raptor_main__", "-m": "tests.system.hostile.script"}
    assert done.stdout == f"ok ran as {names[words[0]]}\n"


def test_a_method_of_a_class_has_a_name_too() -> None:
    name = name_of(functions.Group.inner)
    assert name == Name(
        "tests.system.hostile.functions", str(ROOT / "tests/system/hostile/functions.py"), "Group.inner"
    )
    assert isinstance(name, Name)
    assert find(name)() == "inner"


def test_a_service_in_place_of_its_function_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    function = functions.hello
    service = Service(name="hello", function=function, isolate=True)
    monkeypatch.setattr(functions, "hello", service)
    raptor.runners.check(service)
    name = name_of(function)
    assert isinstance(name, Name)
    assert find(name) is function


def test_a_function_typed_into_the_interpreter_is_refused() -> None:
    script = (
        "from raptor.runners import check; from raptor.service import Service\n"
        "def work(): ...\n"
        "check(Service(name='s', function=work, isolate=True))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S)
    assert "BadInput: service 's': function: isolate needs a process of its own" in done.stderr
    assert "put it into a module" in done.stderr


class Post:
    def __init__(self) -> None:
        self.progress: list[Progress] = []
        self.answered = 0
        self.mail = Mail(self.progress.append, self.answer)

    def answer(self) -> None:
        self.answered += 1


def test_mail_is_read_in_whatever_pieces_it_comes() -> None:
    post = Post()
    for byte in b'{"type":"progress","done":1,"total":null,"text":"a"}\n{"type":"answer","info":"i","error":null}\n':
        post.mail.take(bytes([byte]))
    assert post.progress == [Progress(1, None, "a")]
    assert (post.mail.answer, post.answered) == (Answer("i", None), 1)


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\n\n\0\xff\n",
        b"{" * 100_000 + b"\n",
        b"[" * 100_000 + b"\n",
        b'{"type":"answer"}\n',
        b'{"type":"answer","info":5,"error":null}\n',
        b'{"type":"progress","done":"1","total":null,"text":"a"}\n',
        b'{"type":"other"}\n',
        b"null\n",
    ],
)
def test_mail_that_makes_no_sense_is_dropped(rubbish: bytes) -> None:
    post = Post()
    post.mail.take(rubbish)
    assert (post.mail.answer, post.progress) == (None, [])
    post.mail.take(b'{"type":"answer","info":"i","error":null}\n')
    post.mail.take(b'{"type":"answer","info":"a second one","error":null}\n')
    assert (post.mail.answer, post.answered) == (Answer("i", None), 1)


def test_mail_without_an_end_is_not_kept() -> None:
    post = Post()
    for _ in range(1000):
        post.mail.take(b"x" * 65536)
    assert len(post.mail._rest) <= LONGEST
