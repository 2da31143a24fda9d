"""The errors that Raptor raises: one root and a few children.

The docstring of a class is its default message; a message says what to do next.
"""

from __future__ import annotations


class RaptorError(Exception):
    """Raptor could not do what was asked."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or type(self).__doc__ or "")


class BadSpec(RaptorError, ValueError):
    """A specification is wrong; `field` and `child` say where."""

    def __init__(self, field: str, problem: str, child: object = None) -> None:
        self.field = field
        self.problem = problem
        self.child = child
        where = field if child is None else f"child {child!r}: {field}"
        super().__init__(f"{where}: {problem}")


class StartFailed(RaptorError):
    """An actor did not start; `reason` says why."""

    def __init__(self, who: str, reason: object) -> None:
        self.reason = reason
        super().__init__(f"{who} did not start: {reason!r}")


class NameTaken(StartFailed):
    """Another live actor holds the name; `ref` is that actor."""

    def __init__(self, name: str, ref: object) -> None:
        self.ref = ref
        super().__init__(name, f"the name is held by {ref!r}; stop it or choose another name")


class NoSuchActor(RaptorError):
    """The actor is not alive: start it, or look up its successor by name."""


class ActorDied(RaptorError):
    """The actor ended before it answered; `reason` is its exit reason."""

    def __init__(self, who: str, reason: object) -> None:
        self.reason = reason
        super().__init__(f"{who} ended before it answered: {reason!r}")
        if isinstance(reason, BaseException):
            self.__cause__ = reason


class CallTimeout(RaptorError, TimeoutError):
    """The actor did not answer in time; it may still handle the message."""


class CallingSelf(RaptorError):
    """An actor called itself and would wait for ever: use a cast, or a plain method."""


class ChildError(RaptorError):
    """A supervisor refused a request about a child; `answer` is OTP's word for why."""

    def __init__(self, answer: str, child: object, ref: object = None) -> None:
        self.answer = answer
        self.child = child
        self.ref = ref
        super().__init__(f"child {child!r}: {_ADVICE[answer]}")


_ADVICE = {
    "already_started": "already started under this id",
    "already_present": "its specification is present but it does not run: restart_child or delete_child",
    "not_found": "no such child here; which_children lists them",
    "running": "it runs: terminate_child first",
    "restarting": "it is being restarted: wait, or terminate_child first",
    "simple_one_for_one": "a dynamic supervisor's children have no id: name them by their ref",
}
