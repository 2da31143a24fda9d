"""Modules of the user's, imported as if Python had been started in their folder."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType, TracebackType

from raptor.errors import BadInput, ModuleFailed, NoSuchName


def load_module(name: str, folder: Path) -> ModuleType:
    """Import a module by its name, or by the path of its file, as if Python had been started in the folder.

    The folder stays on sys.path, because a service may import its neighbours when it runs.
    """
    folder = folder.absolute()
    if name.endswith(".py") or os.sep in name:
        file = folder / name
        if not file.is_file():
            raise NoSuchName("file", name, (other.name for other in file.parent.glob("*.py")), f"looked for {file}")
        folder, name = file.parent, file.name.removesuffix(".py")
    _check_module_name(name, folder)
    before = list(sys.path)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        sys.path[:] = before
        if isinstance(error, ModuleNotFoundError) and error.name in _parents(name):
            neighbours = [file.stem for file in folder.glob("*.py")]
            raise NoSuchName("module", name, neighbours, hint=f"looked in {folder} and on Python's path") from None
        raise ModuleFailed(name, _trace(error)) from None


def file_of(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or module.__name__


def _parents(name: str) -> list[str]:
    """a.b.c -> a, a.b, a.b.c: which of them is missing does not matter."""
    parts = name.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]


def _check_module_name(name: str, folder: Path) -> None:
    if not all(name.split(".")):
        raise BadInput(f"module {name!r}: a name such as app.services, or the path of a .py file is expected")
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        raise BadInput(f"module {name!r}: Python has a module {top} of its own: rename the file")
    spec = PathFinder.find_spec(top, [str(folder)])
    here, loaded = (None if spec is None else spec.origin), getattr(sys.modules.get(top), "__file__", None)
    if here and loaded and os.path.realpath(here) != os.path.realpath(loaded):
        raise BadInput(f"module {name!r}: another one of that name is loaded, from {loaded}: rename {here}")


def _trace(error: BaseException) -> str:
    """The traceback from the user's first line on: what is before it is the import's machinery."""
    import traceback  # slow, and needed when a module fails only

    at: TracebackType | None = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename.startswith((__file__, importlib.__file__, "<frozen")):
        at = at.tb_next
    return "".join(traceback.format_exception(type(error), error, at))
