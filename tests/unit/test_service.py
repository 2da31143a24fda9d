"""Services as people define them: the decorator, commands, modules, and the catalogue of all."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from apscheduler.triggers.interval import IntervalTrigger
from hypothesis import given
from hypothesis import strategies as st
from tenacity import wait_fixed

from raptor.catalogue import Catalogue, Placed, from_module, from_target
from raptor.errors import BadInput, ModuleFailed, NoSuchName, RaptorError
from raptor.modules import load_module
from raptor.service import (
    OPTIONS,
    Service,
    command_service,
    read_interval,
    service,
    service_of,
)

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Writes a file of a project; what was imported from it is forgotten afterwards."""
    path, modules = list(sys.path), set(sys.modules)

    def write(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def carried(function: Any) -> Service:
    found = service_of(function)
    assert found is not None
    return found


def refusal(make: Callable[[], object], error: type[RaptorError] = BadInput) -> str:
    with pytest.raises(error) as caught:
        make()
    return str(caught.value)


def work() -> str:
    return "worked"


@service(every="1h", timeout="5m")
def at_the_top() -> str:
    return "worked"


def test_a_bare_decorator_makes_a_service_with_the_defaults() -> None:
    @service
    def crawler() -> str:
        return "crawled"

    assert carried(crawler) == Service(name="crawler", function=crawler)
    assert crawler() == "crawled"


def test_a_decorated_function_stays_the_function_it_was() -> None:
    def plain(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    assert service(plain, every="1h") is plain
    assert plain(1) == 3
    assert plain.__doc__ == "Adds."
    assert pickle.loads(pickle.dumps(at_the_top)) is at_the_top


async def test_an_async_function_may_be_a_service() -> None:
    @service(timeout="5m")
    async def crawler() -> str:
        return "crawled"

    assert carried(crawler).timeout_s == 300.0
    assert await crawler() == "crawled"


def test_every_option_reaches_its_field() -> None:
    wait = wait_fixed(3)

    @service(
        name="nightly",
        cron="30 2 * * *",
        timezone="Europe/Sofia",
        timeout=0,
        max_attempts=3,
        backoff=wait,
        missed="all",
        missed_limit=5,
        overlap="queue",
        on_crash="skip",
        jitter="10s",
        on_failure=["notify", "me"],
    )
    def backup() -> None: ...

    assert carried(backup) == Service(
        name="nightly",
        cron="30 2 * * *",
        timezone="Europe/Sofia",
        timeout_s=0.0,
        max_attempts=3,
        backoff=wait,
        missed="all",
        missed_limit=5,
        overlap="queue",
        on_crash="skip",
        jitter_s=10.0,
        on_failure=("notify", "me"),
        function=backup,
    )


def test_every_option_has_a_field_and_a_type() -> None:
    from raptor.service import Options

    assert OPTIONS.keys() == Options.__annotations__.keys()
    assert {option.field for option in OPTIONS.values()} <= set(Service.__struct_fields__)


@given(st.timedeltas(min_value=timedelta(milliseconds=1), max_value=timedelta(days=36500)))
def test_a_duration_may_be_a_timedelta(every: timedelta) -> None:
    assert carried(service(lambda: None, every=every, name="x")).every_s == every.total_seconds()


def test_a_trigger_of_apscheduler_is_kept() -> None:
    trigger = IntervalTrigger(hours=1)
    assert carried(service(lambda: None, name="x", trigger=trigger)).trigger is trigger


def test_an_option_that_is_none_is_not_given() -> None:
    def f() -> None: ...

    absent: Any = dict.fromkeys([*OPTIONS, "name"])
    assert carried(service(f, **absent)) == Service(name="f", function=f)


@pytest.mark.parametrize("every", ["90s", "PT90S", timedelta(seconds=90)])
def test_an_interval_has_many_spellings(every: Any) -> None:
    assert read_interval(every) == 90.0


def test_the_interval_auto_is_none() -> None:
    assert read_interval("auto") is None


TRIGGER = IntervalTrigger(hours=1)


@pytest.mark.parametrize(
    ("options", "option", "problem"),
    [
        ({"every": "1h", "cron": "@daily"}, "cron", "goes without every: give one of them"),
        ({"every": "1h", "trigger": TRIGGER}, "trigger", "goes without every: give one of them"),
        ({"cron": "@daily", "trigger": TRIGGER}, "trigger", "goes without cron: give one of them"),
        ({"timezone": "Europe/Sofia"}, "timezone", "goes with cron, and there is none"),
        ({"every": "1h", "timezone": "UTC"}, "timezone", "goes with cron, and there is none"),
        ({"cron": "@daily", "anchor": "end"}, "anchor", "'end' goes with every: cron and trigger have their own times"),
        ({"every": 60}, "every", "duration 60: a number without a unit; did you mean 60s or 60ms?"),
        ({"every": "0s"}, "every", "duration '0s': a duration is more than zero"),
        ({"every": "soon"}, "every", "duration 'soon': not a duration; write 500ms, 90s, 1h30m"),
        ({"timeout": "-5m"}, "timeout", "duration '-5m': a duration has no sign"),
        ({"timeout": False}, "timeout", "duration False: not a duration"),
        ({"jitter": 3}, "jitter", "duration 3: a number without a unit"),
        ({"every": "1m", "jitter": "1m"}, "jitter", "must be shorter than every"),
        ({"cron": "30 25 * * *"}, "cron", "cron '30 25 * * *': bad hour"),
        ({"cron": "0 0 30 2 *"}, "cron", "cron '0 0 30 2 *': bad day-of-month"),
        ({"cron": 5}, "cron", "cron 5: not a text"),
        ({"cron": "@daily", "timezone": "Europe/Sofa"}, "timezone", "did you mean Europe/Sofia"),
        ({"trigger": "daily"}, "trigger", "an APScheduler trigger, in Python, not 'daily'"),
        ({"anchor": "start"}, "anchor", "'slot' or 'end' or 'grid', not 'start'"),
        ({"anchor": ["slot"]}, "anchor", "'slot' or 'end' or 'grid', not ['slot']"),
        ({"missed": "never"}, "missed", "'once' or 'skip' or 'all', not 'never'"),
        ({"overlap": True}, "overlap", "'skip' or 'queue', not True"),
        ({"on_crash": "retry"}, "on_crash", "'rerun' or 'skip', not 'retry'"),
        ({"max_attempts": 0}, "max_attempts", "a whole number from 1, not 0"),
        ({"max_attempts": True}, "max_attempts", "a whole number from 1, not True"),
        ({"max_attempts": "3"}, "max_attempts", "a whole number from 1, not '3'"),
        ({"missed": "all", "missed_limit": 0}, "missed_limit", "a whole number from 1, not 0"),
        ({"missed_limit": 5}, "missed_limit", "goes with missed = 'all'"),
        ({"backoff": "2s"}, "backoff", "a tenacity wait, in Python, not '2s'"),
        ({"on_failure": "mail me"}, "on_failure", "a URL (https://...) or a command such as"),
        ({"on_failure": []}, "on_failure", "a URL (https://...) or a command such as"),
        ({"on_failure": [1]}, "on_failure", "a URL (https://...) or a command such as"),
        ({"isolate": "yes"}, "isolate", "true or false, not 'yes'"),
        ({"evry": "1h"}, "evry", "no such option: did you mean 'every'?"),
        ({"retries": 3}, "retries", "no such option: the options are every, cron, timezone,"),
        ({"nmae": "x"}, "nmae", "no such option: did you mean 'name'?"),
    ],
)
def test_a_wrong_option_is_refused_with_the_service_the_option_and_what_is_accepted(
    options: Any, option: str, problem: str
) -> None:
    message = refusal(lambda: service(**options)(work))
    assert message.startswith(f"service 'work': {option}: ")
    assert problem in message


@pytest.mark.spec("004-32")
@pytest.mark.parametrize("name", ["", "a/b", "../etc/passwd", "[red]a", "a\x1b[31m", "a b", "a\n", "-a", "a" * 101])
def test_a_name_that_is_a_path_or_holds_markup_is_refused(name: str) -> None:
    message = refusal(lambda: service(work, name=name))
    assert "a name has 1 to 100 of the letters" in message
    assert "\x1b" not in message


@pytest.mark.spec("004-32")
@pytest.mark.parametrize("name", [5, b"a", ["a"]])
def test_the_name_of_a_service_is_a_string(name: Any) -> None:
    assert refusal(lambda: service(work, name=name)) == f"the name of a service is expected, not {name!r}"


def test_a_lambda_needs_a_name() -> None:
    assert "'<lambda>'" in refusal(lambda: service(lambda: None))


@pytest.mark.parametrize("thing", ["24h", 5, object()])
def test_only_a_function_is_decorated(thing: Any) -> None:
    assert "a function or named options such as every=" in refusal(lambda: service(thing))


def test_a_class_is_no_service() -> None:
    class Crawler: ...

    assert "a function is expected" in refusal(lambda: service(Crawler))


def test_a_function_that_cannot_carry_its_service_is_refused() -> None:
    assert "write a function that calls it" in refusal(lambda: service(print))


def test_a_generator_is_refused_because_calling_it_does_nothing() -> None:
    def sync() -> Iterator[int]:
        yield 1

    async def not_sync() -> Any:
        yield 1

    for function in (sync, not_sync):
        assert "it yields" in refusal(functools.partial(service, function))


def test_work_for_another_process_must_be_found_by_its_name() -> None:
    def nested() -> None: ...

    async def nested_async() -> None: ...

    assert "timeout: it needs a process of its own" in refusal(lambda: service(nested, timeout="5m"))
    assert "isolate: it needs a process of its own" in refusal(lambda: service(nested_async, isolate=True))
    assert carried(service(nested_async, timeout="5m")).timeout_s == 300.0
    assert carried(service(nested, timeout=0)).timeout_s == 0.0
    assert carried(at_the_top).timeout_s == 300.0


def test_a_command_is_a_service() -> None:
    made = command_service("backup", ["/bin/backup", "--quick"], env={"A": "1"}, cwd=Path("/srv"), every="1h")
    assert made == Service(
        name="backup", kind="command", argv=("/bin/backup", "--quick"), env={"A": "1"}, cwd="/srv", every_s=3600.0
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"argv": "backup --quick"}, "command: a list of words such as"),
        ({"argv": []}, "command: a list of words such as"),
        ({"argv": [""]}, "command: a list of words such as"),
        ({"argv": ["a", 1]}, "command: a list of words such as"),
        ({"argv": ["a\0"]}, "command: a list of words such as"),
        ({"argv": ["a"], "env": {"A": 1}}, "env: names and values in text"),
        ({"argv": ["a"], "env": {"A=B": "1"}}, "env: names and values in text"),
        ({"argv": ["a"], "env": {"": "1"}}, "env: names and values in text"),
        ({"argv": ["a"], "cwd": ""}, "cwd: a folder, not ''"),
        ({"argv": ["a"], "isolate": True}, "isolate: a command has a process of its own anyway"),
        ({"argv": ["a"], "every": "1h", "cron": "@daily"}, "cron: goes without every"),
        ({"argv": ["a"], "crn": "@daily"}, "crn: no such option: did you mean 'cron'?"),
    ],
)
def test_a_wrong_command_is_refused(given: Any, problem: str) -> None:
    assert refusal(lambda: command_service("backup", **given)).startswith(f"service 'backup': {problem}")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"every_s": "1h"}, "every: a duration above zero such as"),
        ({"every_s": 0.0}, "every: a duration above zero such as"),
        ({"every_s": float("nan")}, "every: a duration above zero such as"),
        ({"timeout_s": float("inf")}, "timeout: a duration such as"),
        ({"every_s": 1.0, "cron": "@daily"}, "cron: goes without every"),
        ({"kind": "soap"}, "kind: python or command or http or publish, not 'soap'"),
        ({"kind": "http"}, "http: goes with kind http, which needs it"),
        ({"argv": ("a",)}, "command: goes with kind command"),
        ({"env": {"A": "1"}}, "env: goes with a command"),
        ({"cwd": "/"}, "cwd: goes with a command"),
        ({"function": 5}, "function: a function is expected, not 5"),
        ({"kind": "command", "argv": ("a",), "function": work}, "function: a command has none"),
    ],
)
def test_a_service_made_by_hand_is_checked_by_the_catalogue(fields: Any, problem: str) -> None:
    assert refusal(lambda: Catalogue.of([Service(name="x", **fields)])).startswith(f"service 'x': {problem}")


def test_a_catalogue_keeps_the_order_of_a_list_of_functions_and_services() -> None:
    backup = command_service("backup", ["true"])
    catalogue = Catalogue.of([at_the_top, backup, work])
    assert [*catalogue] == ["at_the_top", "backup", "work"]
    assert len(catalogue) == 3
    assert catalogue["backup"] is backup
    assert catalogue.find("work") == Service(name="work", function=work)
    assert catalogue.where("work").startswith(f"{__file__}:")
    assert repr(catalogue) == "Catalogue(at_the_top, backup, work)"


@given(st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), unique=True))
def test_a_catalogue_is_a_mapping_by_name_in_order(names: list[str]) -> None:
    services = [command_service(name, ["true"]) for name in names]
    assert dict(Catalogue.of(services)) == {one.name: one for one in services}
    assert [*Catalogue.of(services)] == names


def test_an_unknown_service_is_refused_with_the_close_names_and_a_hint() -> None:
    catalogue = Catalogue.of([command_service(name, ["true"]) for name in ("backup", "backups", "report")])
    with pytest.raises(NoSuchName) as caught:
        catalogue.find("bakcup")
    assert (
        str(caught.value) == "no service named 'bakcup': did you mean 'backup' or 'backups'? `raptor status` lists them"
    )
    assert (caught.value.what, caught.value.name) == ("service", "bakcup")
    assert refusal(lambda: catalogue.find("\x1b[31mx"), NoSuchName) == (
        "no service named '\\x1b[31mx': `raptor status` lists them"
    )


def test_two_services_of_one_name_are_refused_with_both_places() -> None:
    one, other = command_service("a", ["true"]), command_service("a", ["false"])
    message = refusal(lambda: Catalogue([Placed(one, "services.py:3"), Placed(other, "raptor.toml: services.a")]))
    assert message == (
        "service 'a' is defined twice: in services.py:3 and in raptor.toml: services.a; give one of them another name"
    )


def test_the_same_service_may_be_found_twice() -> None:
    assert [*Catalogue.of([at_the_top, at_the_top])] == ["at_the_top"]


@pytest.mark.parametrize("thing", [5, None, object()])
def test_a_list_of_services_holds_nothing_else(thing: Any) -> None:
    assert "a function, a Service or" in refusal(lambda: Catalogue.of([thing]))


MODULE = """
import functools
from raptor.service import service, command_service

def helper(): ...

@service(every="24h")
def second_in_the_alphabet(): return "a"

@service
async def also(): ...

backup = command_service("backup", ["true"])
alias = also
"""


@pytest.mark.parametrize("by", ["jobs_one", "jobs_one.py", "./jobs_one.py"])
def test_a_module_gives_its_services_in_its_order(write: Write, by: str) -> None:
    file = write("jobs_one.py", MODULE)
    placed = from_module(by, file.parent)
    assert [one.service.name for one in placed] == ["second_in_the_alphabet", "also", "backup"]
    assert [one.place for one in placed] == [f"{file}:7", f"{file}:10", str(file)]


def test_a_file_is_found_from_anywhere_by_its_path(write: Write, tmp_path: Path) -> None:
    file = write("deep/jobs_two.py", MODULE)
    assert len(from_module(str(file), Path("/"))) == 3
    assert len(from_module("deep/jobs_two.py", tmp_path)) == 3


def test_a_module_may_import_its_neighbours_now_and_when_it_runs(write: Write) -> None:
    write("neighbour_one.py", "WORD = 'a'")
    write("neighbour_two.py", "WORD = 'b'")
    file = write(
        "jobs_three.py",
        "from raptor.service import service\nimport neighbour_one\n"
        "@service\ndef f():\n    import neighbour_two\n    return neighbour_one.WORD + neighbour_two.WORD\n",
    )
    function: Any = from_module("jobs_three", file.parent)[0].service.function
    assert function() == "ab"


def test_a_package_gives_a_module_by_its_dotted_name(write: Write, tmp_path: Path) -> None:
    write("app_four/__init__.py", "")
    write("app_four/jobs.py", MODULE)
    assert len(from_module("app_four.jobs", tmp_path)) == 3


def test_another_decorator_outside_is_what_runs(write: Write) -> None:
    file = write(
        "jobs_five.py",
        "import functools\nfrom raptor.service import service\n"
        "def loud(f):\n    @functools.wraps(f)\n    def g(): return f().upper()\n    return g\n"
        "@loud\n@service(every='1h')\ndef f(): return 'a'\n",
    )
    made = from_module("jobs_five", file.parent)[0].service
    assert made.every_s == 3600.0
    assert made.function is not None
    assert made.function() == "A"
    assert [*Catalogue(from_module("jobs_five", file.parent) * 2)] == ["f"]


def test_things_that_answer_to_everything_are_no_services(write: Write) -> None:
    file = write(
        "jobs_six.py",
        "from unittest.mock import MagicMock\nimport raptor\nfrom raptor.service import service, Service\n"
        "class Proxy:\n    __slots__ = ()\n    def __getattr__(self, name): raise RuntimeError(name)\n"
        "    def __call__(self): ...\n"
        "class Holder:\n    service = Service(name='held')\n"
        "proxy, mock = Proxy(), MagicMock()\n"
        "@service\ndef f(): ...\n",
    )
    assert [one.service.name for one in from_module("jobs_six", file.parent)] == ["f"]


def test_a_module_without_services_is_refused(write: Write) -> None:
    file = write("jobs_seven.py", "def f(): ...")
    message = refusal(lambda: from_module("jobs_seven", file.parent))
    assert message == f"{file} defines no service: put @service before a function"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("x = 1\nboom()\n", "NameError: name 'boom' is not defined"),
        ("def f(:\n", "SyntaxError: "),
        ("import raptor_has_no_such_thing\n", "ModuleNotFoundError: No module named 'raptor_has_no_such_thing'"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("from raptor.service import service\n@service(every=5)\ndef f(): ...\n", "service 'f': every: duration 5"),
    ],
)
def test_a_module_that_fails_gives_its_traceback_and_leaves_nothing_behind(write: Write, text: str, last: str) -> None:
    file = write("jobs_eight.py", text)
    path = list(sys.path)
    with pytest.raises(ModuleFailed) as caught:
        from_module("jobs_eight", file.parent)
    assert str(caught.value).startswith("jobs_eight did not import, and nothing of it was taken:\n")
    assert last in caught.value.trace
    assert f'File "{file}", line ' in caught.value.trace or "SystemExit" in last
    assert "importlib" not in caught.value.trace
    assert "jobs_eight" not in sys.modules
    assert sys.path == path


def test_a_module_that_failed_can_be_mended_and_loaded(write: Write) -> None:
    file = write("jobs_nine.py", "boom()")
    refusal(lambda: from_module("jobs_nine", file.parent), ModuleFailed)
    write("jobs_nine.py", MODULE)
    assert len(from_module("jobs_nine", file.parent)) == 3


def test_a_module_that_is_not_there_is_refused_with_the_close_names(write: Write, tmp_path: Path) -> None:
    write("services_ten.py", "")
    assert refusal(lambda: load_module("servces_ten", tmp_path), NoSuchName) == (
        f"no module named 'servces_ten': did you mean 'services_ten'? looked in {tmp_path} and on Python's path"
    )
    assert refusal(lambda: load_module("./servces_ten.py", tmp_path), NoSuchName) == (
        f"no file named './servces_ten.py': did you mean 'services_ten.py'? looked for {tmp_path / 'servces_ten.py'}"
    )


@pytest.mark.parametrize("name", ["", ".", "a..b", ".a", "a."])
def test_a_module_needs_a_name(name: str, tmp_path: Path) -> None:
    assert "a name such as app.services" in refusal(lambda: load_module(name, tmp_path))


def test_a_file_with_the_name_of_a_module_of_python_is_refused(write: Write) -> None:
    file = write("queue.py", MODULE)
    assert "Python has a module queue of its own: rename the file" in refusal(lambda: load_module(str(file), Path("/")))


def test_a_namesake_of_a_loaded_module_is_refused(write: Write, tmp_path: Path) -> None:
    one, other = write("a/jobs_eleven.py", MODULE), write("b/jobs_eleven.py", MODULE)
    load_module("jobs_eleven", one.parent)
    message = refusal(lambda: load_module("jobs_eleven", other.parent))
    assert message == f"module 'jobs_eleven': another one of that name is loaded, from {one}: rename {other}"
    assert load_module(str(one), tmp_path) is sys.modules["jobs_eleven"]


def test_a_function_is_named_by_its_module(write: Write, tmp_path: Path) -> None:
    write("jobs_twelve.py", MODULE)
    assert from_target("jobs_twelve:second_in_the_alphabet", tmp_path).every_s == 86400.0
    assert from_target("./jobs_twelve.py:helper", tmp_path).name == "helper"
    assert from_target("jobs_twelve:backup", tmp_path).kind == "command"
    catalogue = Catalogue.of(["jobs_twelve:also"], tmp_path)
    assert [*catalogue] == ["also"]
    assert catalogue.where("also") == "jobs_twelve:also"


def test_a_function_that_is_not_there_is_refused(write: Write, tmp_path: Path) -> None:
    file = write("jobs_thirteen.py", MODULE)
    assert refusal(lambda: from_target("jobs_thirteen:helpr", tmp_path), NoSuchName) == (
        f"no function named 'helpr': did you mean 'helper'? looked in {file}"
    )


@pytest.mark.parametrize("target", ["", "services", ":f", "services:", "services:a.b", "services:f()"])
def test_a_target_has_a_module_and_a_function(target: str, tmp_path: Path) -> None:
    assert refusal(lambda: from_target(target, tmp_path)) == f'"module:function" is expected, not {target!r}'


@pytest.mark.parametrize(
    "before", ["pass", "import raptor.service", "import raptor.config", "from raptor import service"]
)
def test_the_decorator_is_imported_from_raptor_whatever_was_imported_before(before: str) -> None:
    code = f"{before}\nfrom raptor import service\n@service\ndef f(): ...\n@service(every='1h')\ndef g(): ...\n"
    code += "print(f.service.name, g.service.every_s)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "f 3600.0"


def test_decorating_registers_nowhere() -> None:
    before = msgspec.structs.asdict(carried(at_the_top))
    service(lambda: None, name="other")
    assert msgspec.structs.asdict(carried(at_the_top)) == before
    assert not Catalogue()


def test_services_are_defined_without_an_event_loop_or_a_terminal_being_imported() -> None:
    code = "import sys, raptor.service; print({'asyncio', 'rich', 'click', 'apscheduler', 'tenacity'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
