"""The errors that Raptor raises: one root and a few children.

The docstring of a class is its default message; a message says what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable


def shown(value: object) -> str:
    """A repr that cannot fail: a user's odd object must not break the report about it."""
    try:
        return repr(value)
    except BaseException as error:
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


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


class BadInput(RaptorError, ValueError):
    """What was typed or configured cannot be understood: the message says what is accepted."""


class NoSuchName(RaptorError):
    """There is nothing of that name; `what` says what was looked for, `known` what there is."""

    def __init__(self, what: str, name: str, known: Iterable[str] = (), hint: str = "") -> None:
        self.what = what
        self.name = name
        self.known = tuple(known)
        self.hint = hint
        advice = f"{did_you_mean(name, self.known)} {hint}".strip()
        super().__init__(f"no {what} named {name!r}" + (f": {advice}" if advice else ""))


class TaskFailed(RaptorError):
    """A task whose result was waited for ended without one."""

    def __init__(self, id: int, state: str, reason: str, error: str | None) -> None:
        self.id = id
        self.state = state
        self.reason = reason
        self.error = error
        told = f": {error}" if error else ""
        super().__init__(f"task {id} is {state} ({reason}){told}")


class ModuleFailed(RaptorError):
    """A module of services did not import; `trace` is its traceback."""

    def __init__(self, module: str, trace: str) -> None:
        self.module = module
        self.trace = trace
        super().__init__(f"{module} did not import, and nothing of it was taken:\n{trace.rstrip()}")


class StartFailed(RaptorError):
    """An actor did not start; `reason` says why."""

    def __init__(self, who: str, reason: object) -> None:
        self.reason = reason
        super().__init__(f"{who} did not start: {shown(reason)}")


class NameTaken(StartFailed):
    """Another live actor holds the name; `ref` is that actor."""

    def __init__(self, name: str, ref: object, child: object = None) -> None:
        self.name = name
        self.ref = ref
        self.reason = ("already_started", ref)
        who = f"the name {name!r}" if child is None else f"child {child!r}: the name {name!r}"
        RaptorError.__init__(self, f"{who} is held by {ref!r}; stop it or choose another name")


class NoSuchActor(RaptorError):
    """The actor is not alive: start it, or look up its successor by name."""


class ActorDied(RaptorError):
    """The actor ended before it answered; `reason` is its exit reason."""

    def __init__(self, who: str, reason: object) -> None:
        self.reason = reason
        super().__init__(f"{who} ended before it answered: {shown(reason)}")
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


class NotRunning(RaptorError):
    """No node runs on this state directory: `raptor start NAME` starts one."""


class AlreadyRunning(RaptorError):
    """Something runs already: with `advice` a scheduler or a service, else the owner of a state directory.

    `pid` is the owner's number, None where it could not be read.
    """

    def __init__(self, what: object, pid: int | None = None, *, advice: str = "") -> None:
        self.what = what
        self.pid = pid
        who = "another process" if pid is None else f"process {pid}"
        owned = f"{what} belongs to {who}, which runs: stop it first, or use another directory"
        super().__init__(f"{what} runs already: {advice}" if advice else owned)


class RefusedState(RaptorError):
    """The state on disk cannot be used as it is; `kind` is one word for why, `advice` says what to do."""

    def __init__(self, kind: str, file: object, problem: str, advice: str) -> None:
        self.kind = kind  # damaged, foreign, newer, absent, insecure, network, unreadable, unwritable, broken, closed
        self.file = file
        self.problem = problem
        self.advice = advice
        super().__init__(f"{file} {problem}; {advice}")


_FATES = {"unreachable": "does not answer", "unknown": "was written, or not"}


class NotWritten(RaptorError):
    """The store could not write; nothing was acknowledged, it may be tried again.

    `reason`: full, busy, readonly, unreachable; unknown where the answer to a commit was lost.
    """

    def __init__(self, reason: str, file: object, problem: str) -> None:
        self.reason = reason
        self.file = file
        super().__init__(f"{file} {_FATES.get(reason, 'was not written')}: {problem}")


class StaleLease(RaptorError):
    """Somebody else has the right to do this by now; nothing was written. `key` says which right it was."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"{key} is another's by now; nothing was written")


_ADVICE = {
    "already_started": "already started under this id",
    "already_present": "its specification is present but it does not run: restart_child or delete_child",
    "not_found": "no such child here; which_children lists them",
    "running": "it runs: terminate_child first",
    "restarting": "it is being restarted: wait, or terminate_child first",
    "simple_one_for_one": "a dynamic supervisor's children have no id: name them by their ref",
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The close names as a question, or nothing."""
    from difflib import get_close_matches  # only a mistake pays for it

    close = get_close_matches(name[:200], [*known], n=3)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""
