"""What a wheel and an sdist hold, and that setup.cfg lists all of it."""

import configparser
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from raptor import __version__
from tests.project.conftest import LEFTOVERS, Run


def setup(root: Path) -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg", encoding="utf-8")
    return config


def rows(text: str) -> list[str]:
    return [row for row in text.split("\n") if row]


def folders(root: Path) -> Mapping[str, str]:
    """Import name -> folder, of the packages that have one of their own."""
    return dict(row.split(" = ") for row in rows(setup(root)["options"]["package_dir"]))


def undeclared(root: Path) -> set[str]:
    """Packages on disk that setup.cfg does not list."""
    found = set()
    for name, folder in folders(root).items():
        for path, _, files in os.walk(root / folder):
            if "__init__.py" in files:
                found.add(".".join([name, *Path(path).relative_to(root / folder).parts]))
    return found - set(rows(setup(root)["options"]["packages"]))


@dataclass(frozen=True, kw_only=True)
class Built:
    tree: Path
    wheel: Path
    sdist: Path
    wheel_of_sdist: Path


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory, run: Run) -> Built:
    home = tmp_path_factory.mktemp("built")
    tree = shutil.copytree(root, home / "tree", symlinks=True, ignore=LEFTOVERS)
    build = (sys.executable, "-m", "build", "--no-isolation")
    # Without --wheel and --sdist, build makes the sdist and then the wheel from it.
    run(*build, "--outdir", home / "both", tree, cwd=home)
    run(*build, "--wheel", "--outdir", home / "wheel", tree, cwd=home)
    (wheel,), (sdist,) = (home / "wheel").glob("*.whl"), (home / "both").glob("*.tar.gz")
    return Built(tree=tree, wheel=wheel, sdist=sdist, wheel_of_sdist=home / "both" / wheel.name)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.spec("004-38")
def test_every_package_on_disk_is_declared(root: Path) -> None:
    assert undeclared(root) == set()
    assert {"raptor", "raptor.cli", "raptor.state"} <= set(rows(setup(root)["options"]["packages"]))
    assert all((root / name).exists() for name in ("setup.cfg", "raptor", "cli", "state", "tests", "examples"))


@pytest.mark.parametrize(
    ("folder", "name"),
    [("raptor", "raptor.forgotten"), ("cli", "raptor.cli.forgotten"), ("state", "raptor.state.forgotten")],
)
def test_a_forgotten_package_is_noticed(copy: Path, folder: str, name: str) -> None:
    (copy / folder / "forgotten").mkdir()
    (copy / folder / "forgotten" / "__init__.py").touch()
    assert undeclared(copy) == {name}


@pytest.mark.spec("004-37")
def test_the_libraries_of_the_design_card_are_required(root: Path) -> None:
    config = setup(root)
    required = rows(config["options"]["install_requires"]) + rows(config["options.extras_require"]["test"])
    for library in ("sqlitedict", "click", "apscheduler", "tenacity", "rich", "pytest"):
        assert any(row.startswith(library) for row in required), library


def test_a_wheel_holds_raptor_and_nothing_beside_it(built: Built) -> None:
    names = contents(built.wheel)
    assert {name.split("/")[0] for name in names} == {"raptor", f"raptor_scheduler-{__version__}.dist-info"}
    assert {"raptor/py.typed", "raptor/cli/main.py", "raptor/state/__init__.py"} <= names.keys()
    for name, folder in folders(built.tree).items():
        for source in (built.tree / folder).glob("*.py"):
            assert f"{name.replace('.', '/')}/{source.name}" in names


def test_a_wheel_of_the_sdist_is_the_wheel_of_the_tree(built: Built) -> None:
    assert contents(built.wheel_of_sdist) == contents(built.wheel)


def test_the_sdist_holds_every_source(built: Built) -> None:
    made = {"build", "raptor_scheduler.egg-info"}
    sources = set()
    for path, inner, files in os.walk(built.tree):
        inner[:] = [name for name in inner if name not in made]
        sources |= {str((Path(path) / name).relative_to(built.tree)) for name in files}
    with tarfile.open(built.sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert sources - held == set()


def test_the_command_runs_from_an_installed_wheel(built: Built, tmp_path: Path, run: Run) -> None:
    target = tmp_path / "installed"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index")
    run(*pip, "--target", target, built.wheel, cwd=tmp_path)
    env = {"PYTHONPATH": str(target)}
    asked = run(sys.executable, "-c", "import raptor.cli as cli; print(cli.__file__)", cwd=tmp_path, **env)
    assert asked.stdout.strip() == str(target / "raptor/cli/__init__.py")
    assert run(target / "bin/raptor", "--version", cwd=tmp_path, **env).stdout == f"raptor {__version__}\n"
    assert run(sys.executable, "-m", "raptor", "--version", cwd=tmp_path, **env).stdout == f"raptor {__version__}\n"
    assert "Usage: raptor" in run(target / "bin/raptor", "--help", cwd=tmp_path, **env).stdout
    assert run(target / "bin/raptor", "no-such-thing", cwd=tmp_path, check=False, **env).returncode == 2
