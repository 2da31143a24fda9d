"""Where mutants are tried: a process that has collected the tests once, and forks for each mutant.

The fork gets the code of the one function that is changed, then runs the tests up to the first that fails. A change
outside of any function is tried in a fork that has imported nothing of Raptor yet.
"""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import importlib.abc
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from tests.mutation.mutants import Mutant, mutants

ROOT = Path(__file__).parents[2]
# Only what the tests need, and once, before any fork: others cost seconds each time.
PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout", "_hypothesis_pytestplugin")
HEAVY = ("apscheduler.triggers.interval", "cronsim", "hypothesis.stateful", "msgspec", "sqlitedict", "tenacity", "yaml")
KILLED, SURVIVED, SLOW = "killed", "survived", "timed out"


def file_of(module: str) -> Path:
    """raptor.state.tasks is in state/tasks.py."""
    parts = module.split(".")[1:]
    folder = ROOT if parts[0] in ("state", "cli") else ROOT / "raptor"
    return folder.joinpath(*parts).with_suffix(".py")


class Bed:
    """The tests of a module, and its mutants."""

    def __init__(self, module: str, tests: Sequence[str], scratch: Path) -> None:
        self.module = module
        self.path = file_of(module)
        self.tree = ast.parse(self.path.read_text(encoding="utf-8"))
        self.mutants = mutants(self.tree)
        self._tests = tests
        self._scratch = scratch
        self.survey = scratch / "survey.json"
        self.limit_s = 300.0
        self.plugins: list[object] = [*map(importlib.import_module, PLUGINS), Quick()]
        for name in HEAVY:
            importlib.import_module(name)

    def arguments(self) -> list[str]:
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        quiet = ["-q", "-s", "-x", "-p", "no:cacheprovider", "-o", "timeout=20"]
        return [*quiet, f"--basetemp={self._scratch / 'tests'}", *self._tests]

    def run(self, chosen: Sequence[Mutant], told: Callable[[Mutant, str], None]) -> None:
        """Try each of them; RuntimeError if the tests fail without any."""
        inner = [mutant for mutant in chosen if mutant.where is not None]
        outer = [mutant for mutant in chosen if mutant.where is None]
        self._warm(inner, told)  # first: it sees whether the tests pass without any
        for mutant in outer:
            told(mutant, self._cold(mutant))

    def _cold(self, mutant: Mutant) -> str:
        code = mutant.compiled(self.tree, self.path)

        def child() -> int:
            sys.meta_path.insert(0, Changed(self.module, self.path, code))
            return int(pytest.main(self.arguments(), plugins=self.plugins))

        return forked(child, self.limit_s)

    def _warm(self, chosen: Sequence[Mutant], told: Callable[[Mutant, str], None]) -> None:
        """In a child, which tells by a pipe what came of each: modules are imported there, and go with it."""
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            os.close(reading)
            loop = Loop(self, chosen, lambda mutant, what: _say(writing, chosen.index(mutant), what))
            silence()
            pytest.main(self.arguments(), plugins=[*self.plugins, loop])
            os._exit(0 if loop.sound else 3)
        os.close(writing)
        try:
            with os.fdopen(reading) as lines:
                for line in lines:
                    number, _, what = line.strip().partition(" ")
                    told(chosen[int(number)], what)
        except BaseException:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            raise
        _, status = os.waitpid(process, 0)
        if os.waitstatus_to_exitcode(status):
            raise RuntimeError(f"the tests of {self.module} fail without any mutant: {' '.join(self._tests)}")


def _say(pipe: int, number: int, what: str) -> None:
    os.write(pipe, f"{number} {what}\n".encode())


class Quick:
    """Hypothesis with fewer examples, the same ones each time: that one fails is enough."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import HealthCheck, Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutation", max_examples=25, stateful_step_count=25, derandomize=True, database=None, deadline=None,
            phases=phases, suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        settings.load_profile("mutation")


class Loop:
    """In place of pytest's own loop: all of the tests once, then for each mutant those that reach it, in a fork."""

    def __init__(self, bed: Bed, chosen: Sequence[Mutant], told: Callable[[Mutant, str], None]) -> None:
        self.sound = False
        self._bed = bed
        self._chosen = chosen
        self._told = told

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        began = time.monotonic()
        if forked(lambda: self._survey(session), 2 * self._bed.limit_s) != SURVIVED:
            return True
        self.sound = True
        limit_s = 3 * (time.monotonic() - began) + 20
        reached: list[tuple[float, list[str]]] = json.loads(self._bed.survey.read_text())
        order = sorted(range(len(reached)), key=lambda number: reached[number][0])  # the quick ones first
        living = Living(self._bed.path)
        for mutant in self._chosen:
            items = [session.items[number] for number in order if mutant.where in reached[number][1]]
            code = mutant.compiled(self._bed.tree, self._bed.path)
            self._told(mutant, forked(partial(self._try, session, items, living, mutant, code), limit_s))
        return True

    def _survey(self, session: pytest.Session) -> int:
        """Run every test; note how long each took, and which functions of the module it called."""
        reached: list[tuple[float, list[str]]] = []
        names: set[str] = set()
        ours = cache(partial(_is, path=self._bed.path))

        def call(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and ours(frame.f_code.co_filename):
                names.add(frame.f_code.co_qualname.partition(".<locals>")[0])

        threading.setprofile(call)
        living = Living(self._bed.path)
        for item in session.items:
            names.clear()
            living.forget()  # or only the first test to ask a function that remembers would reach it
            began = time.monotonic()
            sys.setprofile(call)
            try:
                self._run(session, [item])
            finally:
                sys.setprofile(None)
            reached.append((time.monotonic() - began, sorted(names)))
            if session.testsfailed:
                return 1
        self._bed.survey.write_text(json.dumps(reached))
        return 0

    def _try(
        self, session: pytest.Session, items: list[pytest.Item], living: Living, mutant: Mutant, code: CodeType
    ) -> int:
        assert mutant.where is not None
        living.change(mutant.where, code)
        return self._run(session, items)

    def _run(self, session: pytest.Session, items: list[pytest.Item]) -> int:
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return 1
        return 0


class Living:
    """The functions of a module that are alive, and whatever remembers answers. Looked for once: it costs."""

    def __init__(self, path: Path) -> None:
        ours = cache(partial(_is, path=path))
        objects = gc.get_objects()
        self._functions = [one for one in objects if isinstance(one, FunctionType) and ours(one.__code__.co_filename)]
        self._caches = [one for one in objects if isinstance(one, functools._lru_cache_wrapper)]
        gc.freeze()

    def change(self, where: str, module: CodeType) -> None:
        """Give every function of that name its new code."""
        (new,) = [code for code in codes(module) if code.co_qualname == where]
        functions = [one for one in self._functions if one.__code__.co_qualname == where]
        if not functions:
            raise RuntimeError(f"{where} is not loaded")
        for function in functions:
            function.__code__ = new
        self.forget()

    def forget(self) -> None:
        for remembered in self._caches:
            remembered.cache_clear()


def _is(name: str, path: Path) -> bool:
    return os.path.realpath(name) == os.path.realpath(path)


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code of every function, also of the methods of classes."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            if "<locals>" not in constant.co_qualname:
                yield from codes(constant)


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from code that is not that of its file."""

    def __init__(self, module: str, path: Path, code: CodeType) -> None:
        self._module = module
        self._path = path
        self._code = code

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._module:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=str(self._path))

    def exec_module(self, module: Any) -> None:
        module.__file__ = str(self._path)
        exec(self._code, module.__dict__)


def forked(work: Callable[[], int], limit_s: float) -> str:
    """Do it in a fork with a group of its own, which ends with it."""
    process = os.fork()
    if not process:
        os.setpgid(0, 0)
        silence()
        status = 1
        try:
            status = work()
        finally:
            os._exit(1 if status else 0)
    try:
        os.setpgid(process, process)
    except OSError:
        pass  # it did so itself, or has ended
    return _ended(process, limit_s)


def _ended(process: int, limit_s: float) -> str:
    end = time.monotonic() + limit_s
    found, status = os.waitpid(process, os.WNOHANG)
    while not found and time.monotonic() < end:
        time.sleep(0.01)
        found, status = os.waitpid(process, os.WNOHANG)
    try:
        os.killpg(process, signal.SIGKILL)  # and whatever it started
    except ProcessLookupError:
        pass
    if not found:
        os.waitpid(process, 0)
        return SLOW
    return SURVIVED if os.waitstatus_to_exitcode(status) == 0 else KILLED


def silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
