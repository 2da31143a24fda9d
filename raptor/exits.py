"""Why an actor ended, as a value: an Exit, or the exception that ended it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True, slots=True, repr=False)
class Exit:
    """A reason that is not an exception. `Exit.SHUTDOWN("draining")` adds a term to a kind."""

    kind: str
    term: object = None

    NORMAL: ClassVar[Exit]
    SHUTDOWN: ClassVar[Exit]
    KILLED: ClassVar[Exit]
    NOPROC: ClassVar[Exit]
    FAILED: ClassVar[Exit]

    def __call__(self, term: object) -> Exit:
        return Exit(self.kind, term)

    def __repr__(self) -> str:
        return self.kind if self.term is None else f"{self.kind}({self.term!r})"


Exit.NORMAL = Exit("normal")
Exit.SHUTDOWN = Exit("shutdown")
Exit.KILLED = Exit("killed")
Exit.NOPROC = Exit("noproc")
Exit.FAILED = Exit("failed")

Reason: TypeAlias = Exit | BaseException


def is_clean(reason: Reason) -> bool:
    """True for normal, shutdown and shutdown with a term: an end that nobody need mend."""
    return isinstance(reason, Exit) and (reason == Exit.NORMAL or reason.kind == "shutdown")


def as_reason(value: object) -> Reason:
    """A user's stop reason as a Reason: anything that is not one already is a failure with that term."""
    return value if isinstance(value, Exit | BaseException) else Exit.FAILED(value)
