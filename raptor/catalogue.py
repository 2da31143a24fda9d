"""The services that there are: found in modules, lists and tables, by name, each with the place of its definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from raptor.errors import BadInput, NoSuchName
from raptor.modules import file_of, load_module
from raptor.service import Given, Service, check_service, make_service, service_of


class Placed(msgspec.Struct, frozen=True):
    """A service, and where it is defined."""

    service: Service
    place: str


class Catalogue(Mapping[str, Service]):
    """The services that there are, by name, in the order of definition. It never changes: reload makes another.

    Built-in ones are found by their names, and are not listed: "all services" means those that somebody defined.
    """

    def __init__(self, placed: Iterable[Placed] = (), builtin: Iterable[Service] = ()) -> None:
        self._placed: dict[str, Placed] = {}
        self._builtin = {service.name: Placed(service, "built in") for service in builtin}
        for one in placed:
            self._add(one)

    @classmethod
    def of(cls, services: Iterable[Given], folder: Path | None = None) -> Catalogue:
        """The catalogue of a list; "module:function" is looked for in a folder (the current one) first."""
        return cls(place(given, folder or Path.cwd()) for given in services)

    def find(self, name: str) -> Service:
        """The service of that name; an unknown one is refused with the close names."""
        one = self._placed.get(name) or self._builtin.get(name)
        if one is None:
            raise NoSuchName("service", name, self._placed, hint="`raptor status` lists them")
        return one.service

    @cached_property
    def queues(self) -> frozenset[str]:
        """Those that services are put into unless they are told otherwise."""
        return frozenset(one.service.queue for one in self._placed.values())

    def where(self, name: str) -> str:
        """The place of its definition, for people."""
        return self._at(self.find(name).name).place

    def __getitem__(self, name: str) -> Service:
        return self._at(name).service

    def get(self, name: str, default: Any = None) -> Any:
        """Asked for every task: that of Mapping takes three calls more."""
        one = self._placed.get(name) or self._builtin.get(name)
        return default if one is None else one.service

    def __iter__(self) -> Iterator[str]:
        return iter(self._placed)

    def __len__(self) -> int:
        return len(self._placed)

    def __repr__(self) -> str:
        return f"Catalogue({', '.join(self)})"

    def _at(self, name: str) -> Placed:
        return self._placed[name] if name in self._placed else self._builtin[name]

    def _add(self, one: Placed) -> None:
        check_service(one.service)
        name = one.service.name
        there = self._placed.setdefault(name, one)
        # One function may be imported by two modules that are both looked at.
        if there.service != one.service:
            raise BadInput(
                f"service {name!r} is defined twice: in {there.place} and in {one.place}; give one of them another name"
            )


def place(given: Given, folder: Path) -> Placed:
    """A thing of a list as a Service, with its place."""
    if isinstance(given, str):
        return Placed(from_target(given, folder), given)
    if isinstance(given, Service):
        return Placed(given, _place_of(given))
    if not callable(given):
        raise BadInput(f'services: a function, a Service or "module:function" is expected, not {given!r}')
    made = service_of(given) or _plain(given)
    return Placed(made, _place_of(made))


def from_target(target: str, folder: Path) -> Service:
    """The service that "module:function" names; a function that is not decorated gets the defaults."""
    module_name, name = split_target(target)
    module = load_module(module_name, folder)
    found: Any = vars(module).get(name)
    if isinstance(found, Service):
        return found
    if not callable(found):
        functions = (key for key, value in vars(module).items() if callable(value))
        raise NoSuchName("function", name, functions, hint=f"looked in {file_of(module)}")
    return service_of(found) or _plain(found)


def split_target(target: Any) -> tuple[str, str]:
    """The two names in "module:function"."""
    module, _, name = target.rpartition(":") if isinstance(target, str) else ("", "", "")
    if not module or not name.isidentifier():
        raise BadInput(f'"module:function" is expected, not {target!r}')
    return module, name


def from_module(name: str, folder: Path) -> list[Placed]:
    """Every service of a module, in its order: decorated functions, and Services that stand there."""
    module = load_module(name, folder)
    made: dict[int, Service] = {}
    for thing in vars(module).values():
        found = thing if isinstance(thing, Service) else service_of(thing)
        if found is not None:
            made[id(thing)] = found
    if not made:
        raise BadInput(f"{file_of(module)} defines no service: put @service before a function")
    return [Placed(one, _place_of(one, file_of(module))) for one in made.values()]


def _plain(function: Callable[..., Any]) -> Service:
    name = getattr(function, "__name__", "")
    return make_service(name, {"function": function})


def _place_of(service: Service, otherwise: str = "a list of services") -> str:
    function: Any = service.function
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return otherwise if code is None else f"{code.co_filename}:{code.co_firstlineno}"
