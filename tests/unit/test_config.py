"""Settings in layers, and what raptor.toml may say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptor import config, declared
from raptor.config import FILE, LARGEST, Config, find_file
from raptor.declared import expand
from raptor.errors import BadInput, ModuleFailed, NoSuchName, RaptorError
from raptor.rows import Definition, Scheduled
from raptor.service import Service, service


class Project:
    """A folder with a raptor.toml, and a user with a configuration, both of this test alone."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "project"
        self.user_file = root / "user" / "config.toml"
        self.user_state = root / "state"
        self.folder.mkdir()

    @property
    def file(self) -> Path:
        return self.folder / FILE

    def write(self, text: str, name: str = FILE) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def write_user(self, text: str) -> None:
        self.user_file.parent.mkdir()
        self.user_file.write_text(text)

    def load(self, flags: dict[str, Any] | None = None, *, cwd: Path | None = None, **environ: str) -> Config:
        return Config.load(
            flags,
            environ=environ,
            cwd=cwd or self.folder,
            user_file=self.user_file,
            user_state=self.user_state,
        )

    def refusal(self, flags: dict[str, Any] | None = None, **environ: str) -> str:
        return refusal(lambda: self.load(flags, **environ))

    def service(self, **environ: str) -> Service:
        return self.load(**environ).services[0].service()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    path, modules = list(sys.path), set(sys.modules)
    yield Project(tmp_path)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def refusal(act: Callable[[], object], error: type[RaptorError] = BadInput) -> str:
    with pytest.raises(error) as caught:
        act()
    return str(caught.value)


def source(config: Config, name: str) -> str:
    return next(setting.source for setting in config.settings if setting.name == name)


def test_without_any_file_there_are_defaults(project: Project) -> None:
    config = project.load()
    assert config.file is None
    assert config.home == project.user_state
    assert config.modules == ()
    assert (config.log.format, config.log.level, config.log.file) == ("text", "info", None)
    assert (config.retention.age_s, config.retention.keep) == (30 * 86400.0, 1000)
    assert config.notify.per_minute == 10
    assert (config.tz, config.color) == (None, "auto")
    assert {setting.source for setting in config.settings} == {"default"}


def test_the_file_is_found_in_the_folder_or_above_it(project: Project) -> None:
    file = project.write("")
    deep = project.folder / "a" / "b"
    deep.mkdir(parents=True)
    assert project.load(cwd=deep).file == file
    nearer = project.write("", "a/raptor.toml")
    assert project.load(cwd=deep).file == nearer
    assert source(project.load(cwd=deep), "config") == "found"


def test_a_folder_called_raptor_toml_is_no_file(project: Project) -> None:
    project.file.mkdir()
    assert project.load().file is None


def test_somebody_elses_file_above_is_not_picked_up_unseen(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project.write("")
    deep = project.folder / "a"
    deep.mkdir()
    owner = file.stat().st_uid or 1234  # root's would be trusted
    os.chown(file, owner, -1)
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert refusal(lambda: find_file(deep)) == (
        f"{file} belongs to another user (uid {owner}): name it with --config if you trust it"
    )
    assert find_file(project.folder) == file
    assert project.load({"config": str(file)}, cwd=deep).file == file


def test_the_state_is_beside_the_file_or_where_it_is_said(project: Project) -> None:
    assert project.load().home == project.user_state
    project.write("")
    beside = project.load()
    assert beside.home == project.folder / ".raptor"
    assert source(beside, "home") == f"beside {project.file}"
    project.write('home = "var/state"')
    assert project.load().home == project.folder / "var/state"
    assert project.load(RAPTOR_HOME="/srv/env").home == Path("/srv/env")
    assert project.load({"home": "/srv/flag"}, RAPTOR_HOME="/srv/env").home == Path("/srv/flag")


def test_a_users_home_does_not_mix_the_states_of_projects(project: Project) -> None:
    project.write_user('home = "/srv/all"')
    assert project.load().home == Path("/srv/all")
    project.write("")
    assert project.load().home == project.folder / ".raptor"


LAYERS = ["flag", "variable", "file", "user"]


@pytest.mark.parametrize("first", range(5))
@pytest.mark.parametrize(
    ("name", "values", "shown"),
    [
        ("log.level", ["debug", "info", "warning", "error", "info"], None),
        ("retention.age", ["1d", "2d", "3d", "4d", "30d"], ["24h", "2d", "3d", "4d", "30d"]),
        ("retention.keep", ["1", "2", "3", "4", "1000"], None),
        ("notify.per_minute", ["1", "2", "3", "4", "10"], None),
        ("color", ["always", "never", "always", "never", "auto"], None),
        ("log.file", ["/a", "/b", "/c", "/d", "-"], None),
        (
            "store",
            ["memory:", "sqlite:///srv", "postgresql://a:secret@b/c", "postgresql://d/e", "-"],
            ["memory:", "sqlite:///srv", "postgresql://a:***@b/c", "postgresql://d/e", "-"],
        ),
        ("tz", ["UTC", "Europe/Sofia", "Asia/Tokyo", "Europe/Berlin", "-"], None),
    ],
)
def test_a_flag_wins_over_a_variable_over_the_file_over_the_users_over_the_default(
    project: Project, first: int, name: str, values: list[str], shown: list[str] | None
) -> None:
    variable = "RAPTOR_" + name.upper().replace(".", "_")
    flags = {name: values[0]} if first == 0 else {}
    environ = {variable: values[1]} if first <= 1 else {}
    project.write(f'{name} = "{values[2]}"' if first <= 2 else "")
    if first <= 3:
        project.write_user(f'{name} = "{values[3]}"')
    config = project.load(flags, **environ)
    setting = next(setting for setting in config.settings if setting.name == name)
    assert setting.text == (shown or values)[first]
    sources = ["--" + name.replace(".", "-"), variable, str(project.file), str(project.user_file), "default"]
    assert setting.source == sources[first]


def test_a_wrong_value_does_not_hide_under_a_right_one(project: Project) -> None:
    project.write('log.level = "loud"')
    message = project.refusal({"log.level": "info"})
    assert message == f"{project.file}: log.level: debug, info, warning or error is expected, not 'loud'"


def test_an_empty_variable_or_an_absent_flag_is_not_given(project: Project) -> None:
    config = project.load({"home": None, "module": ()}, RAPTOR_HOME="", RAPTOR_LOG_LEVEL="")
    assert {setting.source for setting in config.settings} == {"default"}


def test_no_color_is_heard_after_ours(project: Project) -> None:
    assert source(project.load(NO_COLOR="1"), "color") == "NO_COLOR"
    assert project.load(NO_COLOR="1").color == "never"
    assert project.load(NO_COLOR="1", RAPTOR_COLOR="always").color == "always"
    assert project.load(NO_COLOR="").color == "auto"


def test_a_path_begins_where_it_is_written(project: Project) -> None:
    project.write('log.file = "logs/x.log"\nhome = "../state"')
    deep = project.folder / "a"
    deep.mkdir()
    config = project.load(cwd=deep)
    assert config.log.file == project.folder / "logs/x.log"
    assert config.home == project.folder.parent / "state"
    assert project.load({"log.file": "x.log"}, cwd=deep).log.file == deep / "x.log"
    assert project.load({"home": "~/x"}).home == Path.home() / "x"


def test_another_file_is_named_by_flag_or_variable(project: Project) -> None:
    other = project.write('home = "here"', "conf/other.toml")
    project.write("wrong =")
    assert project.load({"config": "conf/other.toml"}).home == other.parent / "here"
    assert source(project.load({"config": other}), "config") == "--config"
    assert source(project.load(RAPTOR_CONFIG=str(other)), "config") == "RAPTOR_CONFIG"


def test_a_file_that_was_named_must_be_there(project: Project) -> None:
    message = project.refusal({"config": "other.toml"})
    assert message == f"{project.folder / 'other.toml'}: cannot be read: No such file or directory"
    assert "cannot be read: Is a directory" in project.refusal({"config": "."})


def test_loading_twice_gives_equal_configs_and_a_wrong_file_changes_nothing(project: Project) -> None:
    project.write('[services.a]\ncommand = ["true"]\n[schedulers.main]\nservices = ["a=1h"]')
    before = project.load()
    assert project.load() == before
    variables, path, modules = dict(os.environ), list(sys.path), set(sys.modules)
    project.write('[services.a]\ncommand = ["true"]\nevery = 5')
    project.refusal()
    assert (dict(os.environ), sys.path, set(sys.modules)) == (variables, path, modules)
    assert before.services[0].service().argv == ("true",)
    with pytest.raises(AttributeError):
        before.home = Path("/")  # type: ignore[misc]


def test_the_real_surroundings_are_the_default(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project.folder / "xdg"))
    monkeypatch.setenv("XDG_STATE_HOME", str(project.folder / "xdg-state"))
    monkeypatch.delenv("RAPTOR_HOME", raising=False)
    monkeypatch.setenv("RAPTOR_LOG_FORMAT", "json")
    project.write('log.level = "debug"', "xdg/raptor/config.toml")
    config = Config.load()
    assert (config.log.format, config.log.level) == ("json", "debug")
    assert config.home == project.folder / "xdg-state/raptor"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("home = \n", 1, "Invalid value"),
        ("a = 1\nb == 2\n", 2, ""),
        ("[services.a]\n[services.a]\n", 2, "twice"),
        ('home = "a"\nhome = "b"\n', 2, "overwrite"),
        ("home = 'a\n", 1, "(at end of document)"),
        ("# a\nmodule = [", 2, "(at end of document)"),
    ],
)
def test_bad_toml_is_refused_with_file_and_line(project: Project, text: str, line: int, problem: str) -> None:
    project.write(text)
    message = project.refusal()
    assert message.startswith(f"{project.file}:{line}: ")
    assert problem in message


def test_a_file_that_is_no_text_or_too_long_or_too_deep_is_refused(project: Project) -> None:
    project.file.write_bytes(b'home = "a"\n\xff\xfe')
    assert project.refusal() == f"{project.file}:2: not UTF-8: save the file in that encoding"
    project.write("# " + "x" * LARGEST)
    assert project.refusal() == f"{project.file}: longer than {LARGEST} bytes: this is no file of settings"
    project.write("home = " + "[" * 100_000)
    assert project.refusal() == f"{project.file}: nested too deep"
    project.write("home = " + "9" * 5000)
    assert str(project.file) in project.refusal()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("home = 5", "home: a path is expected, not 5"),
        ('home = ""', "home: a path is expected, not ''"),
        ("module = 5", "module: the name of a module, or a list of them, is expected, not 5"),
        ('module = ["a", 5]', "module: the name of a module, or a list of them, is expected, not ['a', 5]"),
        ('module = ["a", ""]', "module: a module without a name: ['a', '']"),
        ('tz = "Europe/Sofa"', "tz: time zone 'Europe/Sofa': no such zone; did you mean Europe/Sofia"),
        ("color = true", "color: auto, always or never is expected, not True"),
        ('log = "json"', "log: a table is expected, not 'json'"),
        ('log.format = "xml"', "log.format: text or json is expected, not 'xml'"),
        ("retention.age = 30", "retention.age: duration 30: a number without a unit; did you mean 30s or 30ms?"),
        ("retention.keep = 0", "retention.keep: a whole number from 1 is expected, not 0"),
        ("retention.keep = true", "retention.keep: a whole number from 1 is expected, not True"),
        ("notify.per_minute = 1.5", "notify.per_minute: a whole number from 1 is expected, not 1.5"),
        ('hom = "x"', "hom: no such key: did you mean 'home'?"),
        ("x = 1", "x: no such key: there are home, store, module, tz, color, log, retention, "),
        ('log.fromat = "json"', "log.fromat: no such key: did you mean 'format'?"),
        ('"\\u001b[31m" = 1', "'\\x1b[31m': no such key: there are home"),
        ("services = 5", "services: a table is expected, not 5"),
        ("services.a = 5", "services.a: a table is expected, not 5"),
        ("[services.a]", "services.a: one of command = "),
        ('[services.a]\ncommand = ["a"]\npython = "m:f"', "services.a: one of command = "),
        (
            '[services.a]\nhttps = {url = "https://x"}',
            "services.a.https: no such key: did you mean 'http'?",
        ),
        ('[services."a/b"]\ncommand = ["a"]', "services: name 'a/b': a name has 1 to 100"),
        ('[services.a]\ncommand = "backup --quick"', "services.a.command: a list of words such as"),
        ("[services.a]\ncommand = []", "services.a.command: a list of words such as"),
        ('[services.a]\ncommand = ["a", 5]', "services.a.command: a list of words such as"),
        ('[services.a]\ncommand = ["a"]\nenv = {PORT = 80}', "services.a.env: names and values in text such as"),
        ('[services.a]\ncommand = ["a"]\nenv = {"A=B" = "c"}', "services.a.env: names and values in text such as"),
        ('[services.a]\ncommand = ["a"]\ncwd = 5', "services.a.cwd: a text is expected, not 5"),
        ('[services.a]\ncommand = ["a"]\ncwd = ""', "services.a.cwd: a path is expected, not ''"),
        ('[services.a]\ncommand = ["a"]\ncron = "30 25 * * *"', "services.a.cron: cron '30 25 * * *': bad hour"),
        ('[services.a]\ncommand = ["a"]\nevery = "1h"\ncron = "@daily"', "services.a.cron: goes without every"),
        ('[services.a]\ncommand = ["a"]\ntimezone = "UTC"', "services.a.timezone: goes with cron, and there is none"),
        ('[services.a]\ncommand = ["a"]\nevery = 5', "services.a.every: duration 5: a number without a unit"),
        (
            '[services.a]\ncommand = ["a"]\nevery = 2020-01-01',
            "services.a.every: duration datetime.date(2020, 1, 1): not",
        ),
        ('[services.a]\ncommand = ["a"]\nmax_attempts = 0', "services.a.max_attempts: a whole number from 1, not 0"),
        ('[services.a]\ncommand = ["a"]\nisolate = true', "services.a.isolate: a command has a process of its own"),
        (
            '[services.a]\ncommand = ["a"]\ntrigger = "x"',
            "services.a.trigger: an APScheduler trigger, in Python, not 'x'",
        ),
        ('[services.a]\ncommand = ["a"]\nbackoff = "2s"', "services.a.backoff: a tenacity wait, in Python, not '2s'"),
        ('[services.a]\ncommand = ["a"]\non_failure = "me"', "services.a.on_failure: a URL (https://...) or a command"),
        ('[services.a]\ncommand = ["a"]\non_failure = [5]', "services.a.on_failure: a URL (https://...) or a command"),
        ('[services.a]\ncommand = ["a"]\nevry = "1h"', "services.a.evry: no such key: did you mean 'every'?"),
        ('[services.a]\npython = "services"', "services.a.python: \"module:function\" is expected, not 'services'"),
        ("[services.a]\npython = 5", 'services.a.python: "module:function" is expected, not 5'),
        ('[services.a]\npython = "m:f"\nenv = {A = "b"}', "services.a.env: goes with a command"),
        ('[services.a]\npython = "m:f"\ncwd = "/"', "services.a.cwd: goes with a command"),
        ("schedulers.main = 5", "schedulers.main: a table is expected, not 5"),
        ('[schedulers."a b"]', "schedulers: name 'a b': a name has 1 to 100"),
        ("[schedulers.main]\ninterval = 60", "schedulers.main.interval: duration 60: a number without a unit"),
        ('[schedulers.main]\nintervall = "1h"', "schedulers.main.intervall: no such key: did you mean 'interval'?"),
        ('[schedulers.main]\nservices = "a"', "schedulers.main.services: a list such as"),
        ("[schedulers.main]\nservices = [5]", "schedulers.main.services: a table is expected, not 5"),
        ('[schedulers.main]\nservices = ["a=5"]', "schedulers.main.services: a: duration 5: a number without a unit"),
        ('[schedulers.main]\nservices = ["a", "a=1h"]', "schedulers.main.services: a stands there twice"),
        ('[schedulers.main]\nservices = [{every = "1h"}]', "schedulers.main.services.name: the name of a service is"),
        ('[schedulers.main]\nservices = [{name = "a/b"}]', "schedulers.main.services.name: name 'a/b': a name has"),
        (
            '[schedulers.main]\nservices = [{name = "a", evry = "1h"}]',
            "schedulers.main.services.evry: no such key: did",
        ),
        ('[schedulers.main]\nservices = [{name = "a", cron = "x"}]', "schedulers.main.services.cron: cron 'x'"),
        (
            '[schedulers.main]\nservices = [{name = "a", every = "1h", cron = "@daily"}]',
            "schedulers.main.services: cron goes without every: give one of them",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_file_its_key_and_what_is_accepted(
    project: Project, text: str, problem: str
) -> None:
    project.write(text)
    assert project.refusal().startswith(f"{project.file}: {problem}")


@pytest.mark.parametrize(
    ("flags", "environ", "message"),
    [
        ({"log.format": "xml"}, {}, "--log-format: text or json is expected, not 'xml'"),
        ({}, {"RAPTOR_RETENTION_AGE": "30"}, "RAPTOR_RETENTION_AGE: duration 30: a number without a unit"),
        ({}, {"RAPTOR_RETENTION_KEEP": "many"}, "RAPTOR_RETENTION_KEEP: a whole number from 1 is expected, not 'many'"),
        ({}, {"RAPTOR_RETENTION_KEEP": "0"}, "RAPTOR_RETENTION_KEEP: a whole number from 1 is expected, not '0'"),
        ({"module": ","}, {}, "-m: a module without a name: ','"),
        ({"hme": "/x"}, {}, "flags: hme: no such key: did you mean 'home'?"),
    ],
)
def test_a_wrong_flag_or_variable_is_refused_by_its_name(
    project: Project, flags: dict[str, Any], environ: dict[str, str], message: str
) -> None:
    assert project.refusal(flags, **environ).startswith(message)


@pytest.mark.parametrize("text", ['module = "services"', '[services.a]\ncommand = ["a"]', "[schedulers.main]"])
def test_services_belong_to_a_project_not_to_the_user(project: Project, text: str) -> None:
    project.write_user(text)
    assert f"belongs to a project: write it into its {FILE}" in project.refusal()


def test_a_command_has_all_its_options(project: Project) -> None:
    project.write(
        """
        [services.backup]
        command = ["/usr/local/bin/backup", "--quick"]
        cron = "30 2 * * *"
        timezone = "Europe/Sofia"
        timeout = "5m"
        max_attempts = 3
        missed = "all"
        missed_limit = 4
        overlap = "queue"
        on_crash = "skip"
        jitter = "10s"
        on_failure = "https://example.org/hook"
        env = {LEVEL = "9"}
        cwd = "data"
        """
    )
    assert project.service() == Service(
        name="backup",
        kind="command",
        argv=("/usr/local/bin/backup", "--quick"),
        cron="30 2 * * *",
        timezone="Europe/Sofia",
        timeout_s=300.0,
        max_attempts=3,
        missed="all",
        missed_limit=4,
        overlap="queue",
        on_crash="skip",
        jitter_s=10.0,
        on_failure="https://example.org/hook",
        env={"LEVEL": "9"},
        cwd=str(project.folder / "data"),
    )


def test_a_command_runs_in_the_folder_of_its_file(project: Project) -> None:
    project.write('[services.a]\ncommand = ["true"]')
    assert project.service().cwd == str(project.folder)


@pytest.mark.spec("R4-13")
def test_variables_are_expanded_in_commands_their_environment_and_their_folder(project: Project) -> None:
    project.write(
        """
        [services.a]
        command = ["${BIN}/backup", "--to=${TARGET}", "$TARGET costs 5$$ or $$${EMPTY}{TARGET}"]
        env = {TOKEN = "${SECRET}"}
        cwd = "${TARGET}"
        on_failure = ["${BIN}/notify"]
        """
    )
    made = project.service(BIN="/opt/bin", TARGET="/srv/${BIN}", SECRET="$x", EMPTY="")
    assert made.argv == ("/opt/bin/backup", "--to=/srv/${BIN}", "$TARGET costs 5$ or ${TARGET}")
    assert made.env == {"TOKEN": "$x"}
    assert made.cwd == "/srv/${BIN}"
    assert made.on_failure == ("/opt/bin/notify",)


@pytest.mark.spec("R4-13")
@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('command = ["${NOT_SET}"]', "command"),
        ('command = ["a"]\nenv = {A = "${NOT_SET}"}', "env"),
        ('command = ["a"]\ncwd = "${NOT_SET}"', "cwd"),
        ('command = ["a"]\non_failure = "https://x/${NOT_SET}"', "on_failure"),
    ],
)
def test_a_variable_that_is_not_set_is_refused_by_its_name(project: Project, line: str, key: str) -> None:
    project.write(f"[services.a]\n{line}")
    message = project.refusal()
    assert message.startswith(f"{project.file}: services.a.{key}: ")
    assert "the variable NOT_SET is not set; set it, or write $${NOT_SET} for the text itself" in message


@pytest.mark.parametrize("text", ["${", "${}", "${A", "${A-b}", "${A:-b}", "${1}", "${ A }"])
def test_a_dollar_with_a_bracket_needs_a_name(text: str) -> None:
    assert "$$ stands for a $" in refusal(lambda: expand(text, {"A": "x"}))


@given(st.text())
def test_any_text_can_be_written_with_doubled_dollars(text: str) -> None:
    assert expand(text.replace("$", "$$"), {}) == text


@given(st.text(), st.text(), st.text())
def test_a_value_is_put_in_as_it_is(before: str, value: str, after: str) -> None:
    written = before.replace("$", "$$") + "${NAME}" + after.replace("$", "$$")
    assert expand(written, {"NAME": value}) == before + value + after


SERVICES = """
from raptor.service import service

@service(every="24h", max_attempts=3)
def report(): return "reported"

def plain(): ...
"""


def test_a_function_is_named_in_the_file_and_the_files_options_win(project: Project) -> None:
    project.write(SERVICES, "conf_jobs_one.py")
    project.write(
        """
        [services.report]
        python = "conf_jobs_one:report"
        [services.hourly]
        python = "conf_jobs_one:report"
        cron = "@hourly"
        on_crash = "skip"
        [services.plain]
        python = "./conf_jobs_one.py:plain"
        every = "5m"
        """
    )
    catalogue = project.load().catalogue()
    assert [*catalogue] == ["report", "hourly", "plain"]
    assert (catalogue["report"].every_s, catalogue["report"].max_attempts) == (86400.0, 3)
    hourly = catalogue["hourly"]
    assert (hourly.every_s, hourly.cron, hourly.max_attempts, hourly.on_crash) == (None, "@hourly", 3, "skip")
    assert catalogue["plain"].every_s == 300.0
    assert hourly.function is not None
    assert hourly.function() == "reported"


def test_loading_imports_no_module(project: Project) -> None:
    project.write('module = "conf_not_there"\n[services.a]\npython = "conf_not_there:f"')
    assert project.load().modules == ("conf_not_there",)


def test_a_catalogue_has_what_is_given_then_modules_then_the_file(project: Project) -> None:
    project.write(SERVICES, "conf_jobs_two.py")
    project.write('module = "conf_jobs_two"\n[services.backup]\ncommand = ["true"]')

    @service
    def mine() -> None: ...

    catalogue = project.load().catalogue([mine, "conf_jobs_two:plain"])
    assert [*catalogue] == ["mine", "plain", "report", "backup"]
    assert catalogue.where("backup") == f"{project.file}: services.backup"


@pytest.mark.parametrize(
    ("flags", "environ"),
    [
        ({"module": ["conf_jobs_three", "conf_jobs_four"]}, {}),
        ({}, {"RAPTOR_MODULE": "conf_jobs_three, conf_jobs_four"}),
    ],
)
def test_modules_of_the_command_line_are_looked_for_in_the_current_folder(
    project: Project, flags: dict[str, Any], environ: dict[str, str]
) -> None:
    project.write(SERVICES, "sub/conf_jobs_three.py")
    project.write(SERVICES.replace("report", "other"), "sub/conf_jobs_four.py")
    project.write('module = "not_this"')
    config = project.load(flags, cwd=project.folder / "sub", **environ)
    assert [*config.catalogue()] == ["report", "other"]


def test_a_name_in_a_module_and_in_the_file_is_refused_with_both_places(project: Project) -> None:
    module = project.write(SERVICES, "conf_jobs_five.py")
    project.write('module = "conf_jobs_five"\n[services.report]\ncommand = ["true"]')
    assert refusal(project.load().catalogue) == (
        f"service 'report' is defined twice: in {module}:4 and in {project.file}: services.report;"
        " give one of them another name"
    )


def test_a_module_that_fails_says_so_and_the_config_stays_as_it_was(project: Project) -> None:
    project.write("boom()", "conf_jobs_six.py")
    project.write('module = ["conf_jobs_six"]\n[services.a]\ncommand = ["true"]')
    config = project.load()
    assert "NameError: name 'boom' is not defined" in refusal(config.catalogue, ModuleFailed)
    assert [declared.service().name for declared in config.services] == ["a"]


def test_a_function_that_is_not_there_is_refused_with_the_key_that_names_it(project: Project) -> None:
    module = project.write(SERVICES, "conf_jobs_seven.py")
    project.write('[services.a]\npython = "conf_jobs_seven:repport"')
    assert refusal(project.load().catalogue, NoSuchName) == (
        f"no function named 'repport': did you mean 'report'? looked in {module} for {project.file}: services.a.python"
    )


def test_schedulers_are_defined_in_every_spelling(project: Project) -> None:
    project.write(
        """
        [schedulers.main]
        interval = "1h"
        services = [
            "a", "b=24h", "c=cron 30 2 * * *", {name = "d"}, {name = "e", every = "5m"}, {name = "f", cron = "@daily"},
        ]
        [schedulers.night]
        interval = "auto"
        [schedulers.idle]
        """
    )
    main, night, idle = project.load().schedulers
    assert main == Definition(
        name="main",
        interval_s=3600.0,
        services=(
            Scheduled(name="a"),
            Scheduled(name="b", every_s=86400.0),
            Scheduled(name="c", cron="30 2 * * *"),
            Scheduled(name="d"),
            Scheduled(name="e", every_s=300.0),
            Scheduled(name="f", cron="@daily"),
        ),
    )
    assert night == Definition(name="night")
    assert idle == Definition(name="idle")


@pytest.mark.spec("004-32")
@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", fullmatch=True))
def test_a_scheduler_and_its_services_have_plain_names(name: str) -> None:
    document = {"schedulers": {name: {"services": [name]}}}
    assert declared.schedulers(document, Path("/x")) == (Definition(name=name, services=(Scheduled(name=name),)),)


def test_a_scheduler_may_name_only_services_that_there_are(project: Project) -> None:
    project.write('[services.backup]\ncommand = ["true"]\n[schedulers.main]\nservices = ["bakup"]')
    assert refusal(project.load().catalogue, NoSuchName) == (
        f"no service named 'bakup': did you mean 'backup'? {project.file}: schedulers.main.services names it"
    )


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["command", "python", "env", "cwd", "every", "cron", "timezone", "anchor", "timeout", "jitter"]
) | (
    st.sampled_from(
        ["max_attempts", "missed", "missed_limit", "on_failure", "isolate", "trigger", "backoff", "on_crash"]
    )
)


def complaint(act: Callable[[], object]) -> str | None:
    try:
        act()
    except BadInput as error:
        return str(error)
    return None


@given(st.dictionaries(KEYS, JUNK), st.dictionaries(st.sampled_from(["interval", "services"]), JUNK))
def test_whatever_stands_in_the_tables_is_read_or_refused(table: dict[str, Any], scheduler: dict[str, Any]) -> None:
    document = {"services": {"a": table}, "schedulers": {"b": scheduler}}
    for message in (
        complaint(lambda: declared.services(document, Path("/x"), {})),
        complaint(lambda: declared.schedulers(document, Path("/x"))),
    ):
        assert message is None or message.startswith("/x: s")


@given(st.dictionaries(st.sampled_from(["home", "module", "tz", "color", "log", "retention", "notify"]), JUNK))
def test_whatever_stands_in_the_settings_is_read_or_refused(document: dict[str, Any]) -> None:
    def read() -> None:
        layers = config._project(Path("/x"), document)
        for name in config._SETTINGS:
            config._resolve(name, layers)

    message = complaint(read)
    assert message is None or message.startswith("/x: ")


def test_reading_settings_imports_nothing_heavy() -> None:
    heavy = "{'asyncio', 'rich', 'click', 'apscheduler', 'tenacity', 'sqlitedict', 'sqlite3', 'logging'}"
    code = f"import sys, raptor.config; raptor.config.Config.load(); print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "set()"
