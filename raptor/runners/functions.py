"""Python functions as services: what they take, and the name by which another process finds them."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from raptor.payload import Form, form_of, parameters_of, takes_context
from raptor.runners import Context

Function = Callable[..., Any]

MAIN = "__raptor_main__"  # what a script that was run as __main__ is called in the other process


class Name(NamedTuple):
    """Where a function is found: the file is for a module that no import finds."""

    module: str
    file: str | None
    qualname: str


class Shape(NamedTuple):
    """How a function is called."""

    is_async: bool
    context: inspect.Parameter | None  # the parameter that gets the context
    form: Form  # of the others, which a task's data fill

    @property
    def missing(self) -> tuple[str, ...]:
        """Parameters that nobody fills but a task."""
        return self.form.required

    def caller(self, function: Function) -> Callable[[Context], Any]:
        """How to call it with a context: found out once, since there may be many calls."""
        arguments, parameter = self.form.arguments, self.context

        def call(context: Context) -> Any:
            return function() if context.task is None else function(**arguments(context.data))

        def call_with_context(context: Context) -> Any:
            given = {} if context.task is None else arguments(context.data)
            assert parameter is not None
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                return function(context, **given)
            return function(**{parameter.name: context}, **given)

        return call if parameter is None else call_with_context


def shape(function: Function, *, batch: bool = False) -> Shape:
    context = next((each for each in parameters_of(function) if takes_context(each)), None)
    return Shape(is_async(function), context, form_of(function, batch))


def is_async(function: Function) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - an object whose call is async


def is_generator(function: Function) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def name_of(function: Function) -> Name | str:
    """The name under which a fresh interpreter finds the function, or why there is none."""
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        return f"{type(function).__name__} objects have no name to import them by; wrap it in a function of a module"
    if "<" in qualname:
        return f"{qualname} is no function of a module; move it to the top level of one"
    loaded = sys.modules.get(module)
    try:
        found = _attribute(loaded, qualname)
    except AttributeError:
        return f"there is no {qualname} in module {module}; keep the function under the name it was defined with"
    if found is not function and inspect.unwrap(found) is not function:
        return f"{qualname} in module {module} is another object; keep the function under the name it was defined with"
    file = getattr(loaded, "__file__", None)
    spec = getattr(loaded, "__spec__", None)
    if module == "__main__":
        if spec is None and file is None:
            return "it was typed in, and is in no file; put it into a module"
        module = MAIN if spec is None else spec.name
    return Name(module, file and os.path.abspath(file), qualname)


def find(name: Name) -> Function:
    """The function of that name, in a process that has not loaded its module yet."""
    found: Function = _attribute(_load(name.module, name.file), name.qualname)
    if not callable(found):
        raise TypeError(f"{name.qualname} in {name.module} is not a function")
    return found


def _attribute(module: ModuleType | None, qualname: str) -> Any:
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part)
    # What the decorator leaves in the module may be the service rather than its function.
    return found if callable(found) else getattr(found, "function", found)


def _load(module: str, file: str | None) -> ModuleType:
    if file is None:
        return importlib.import_module(module)
    if module != MAIN:
        try:
            spec = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            spec = None
        # A namesake on the path is another module.
        if spec is not None and spec.origin is not None and _same(spec.origin, file):
            return importlib.import_module(module)
    return _load_file(module, file)


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _load_file(module: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(module, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python module")
    made = importlib.util.module_from_spec(spec)
    sys.modules[module] = made
    spec.loader.exec_module(made)
    return made
