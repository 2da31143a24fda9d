"""One process in a session of its own, with whatever it starts: begun, read, timed and ended together.

A run's processes end with the run, unless the leader stays for more work. The leader is reaped last, because while it
is a zombie its number, and so the number of its group, cannot become a stranger's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

from raptor.clock import Clock
from raptor.runners import Context, family, oom
from raptor.runners.output import Capture, RunLog
from raptor.runners.text import stamp

TERM_GRACE_S = 2.0  # from SIGTERM to SIGKILL
DRAIN_S = 1.0  # what an exit leaves for the rest of the output, whoever holds the pipe
KILL_WAIT_S = 1.0  # for the kernel to end what was killed, and for a thread to look for the rest
POLL_S = 0.05
DRAINS = 5  # a pipe that was made as large as may be
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)  # itself, or as a shell tells it of its child

OUT_OF_MEMORY = "killed by the kernel: out of memory"

# The node's own affair with systemd: a service must not speak for it.
_PRIVATE = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class Ended(NamedTuple):
    status: int | None  # the exit status, or minus the signal; None: it outlived SIGKILL
    timed_out: bool
    forced: bool  # SIGTERM was not enough
    out_of_memory: bool = False  # the kernel killed for want of memory while it ran


class Group:
    """Starts a process, in an environment made by `environment`; OSError and ValueError are why it could not."""

    def __init__(
        self,
        clock: Clock,
        argv: Sequence[str],
        *,
        log: RunLog,
        env: Mapping[str, str],
        cwd: str | None = None,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
        pass_fds: Sequence[int] = (),
        marks: Sequence[str] = (family.RUN_ID, family.MARK),  # by which its processes are known
    ) -> None:
        self._clock = clock
        self._marks = {name: env[name] for name in marks}
        self._known: set[family.Member] = set()
        self._kills = oom.kills()
        self._over = asyncio.Event()  # the work is done, though its process may not have gone yet
        self._exit = asyncio.Event()
        read, write = os.pipe()
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=write,
                stderr=write,
                env=env,
                cwd=cwd,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._output = Capture(read, log.write)
        self._watch = _Watch(self._process, self._exited)

    def done(self) -> None:
        """The work has its result: the process may take a moment to go, and no longer."""
        self._over.set()

    @property
    def exited(self) -> bool:
        return self._exit.is_set()

    async def live(self, timeout_s: float | None) -> Ended:
        """Wait for its end, or make one: after a time, or when cancelled. Nothing of it is left then."""
        return await self.end(await self.work(timeout_s))

    def begin(self, log: RunLog) -> int:
        """Other work for a process that rests; -> the pipe for its output, which the caller hands over and closes."""
        read, write = os.pipe()
        self._output = Capture(read, log.write)
        self._kills = oom.kills()
        self._over.clear()
        return write

    def rest(self) -> None:
        """The work is over, and its process stays: what it printed is taken, whoever still holds the pipe."""
        for _ in range(DRAINS):
            self._output.drain()
        self._output.close()

    async def work(self, timeout_s: float | None) -> bool:
        """Wait for the result of the work; -> whether it came in time. When cancelled, nothing of it is left."""
        try:
            return await _within(timeout_s, self._over)
        except asyncio.CancelledError:
            try:
                await self._end()
                await self._settle()
            finally:
                self._close()
            raise
        except BaseException:
            self._close()
            raise

    async def end(self, in_time: bool = True) -> Ended:
        """Give it a moment to go if it was in time, make it go if it was not; nothing of it is left then."""
        try:
            forced = False
            if not in_time or not await _within(TERM_GRACE_S, self._exit):
                forced = await self._end()
            status = await self._settle()
            return Ended(status, not in_time, forced, self._out_of_memory(status))
        except asyncio.CancelledError:
            await self._end()
            await self._settle()
            raise
        finally:
            self._close()

    def _exited(self) -> None:
        self._over.set()
        self._exit.set()

    async def _end(self) -> bool:
        """Ask it to go, and kill it if it does not; -> whether it had to be killed."""
        self._known = family.of_run(self._marks, self._process.pid)
        self._signal(signal.SIGTERM)
        family.send(self._known, signal.SIGTERM)
        # A shell dies of the signal at once: those it started have their time while they hold its output.
        if await _within(TERM_GRACE_S, self._exit, self._output.ended):
            return False
        self._kill()
        return True

    def _kill(self) -> None:
        self._known |= family.of_run(self._marks, self._process.pid)
        self._signal(signal.SIGKILL)
        family.sweep(self._marks, self._known)

    async def _settle(self) -> int | None:
        """The rest of the output, the end of whatever is left, and the status."""
        await _within(KILL_WAIT_S, self._exit)
        await _within(DRAIN_S, self._output.ended)
        self._output.close()
        self._signal(signal.SIGKILL)
        sweep = asyncio.ensure_future(self._clock.offload(family.sweep, self._marks, self._known))
        # Threads may all be stuck; the search is harmless whenever it comes.
        await asyncio.wait({sweep}, timeout=KILL_WAIT_S)
        return self._process.poll()

    def _out_of_memory(self, status: int | None) -> bool:
        if status not in KILLED or self._kills is None:
            return False
        return (oom.kills() or 0) > self._kills

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # nobody is left, or all belong to another user
            os.killpg(self._process.pid, number)

    def _close(self) -> None:
        """The last resort of a run that was cancelled twice, and the end of every other."""
        if self._process.poll() is None:
            self._kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_WAIT_S)
        self._output.close()
        self._watch.close()


class _Watch:
    """Tells when a process has exited: without a thread, and where the system can, without reaping it."""

    def __init__(self, process: subprocess.Popen[bytes], exited: Callable[[], None]) -> None:
        self._process = process
        self._exited = exited
        self._loop = asyncio.get_running_loop()
        self._handle: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        try:
            self._handle = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # not Linux, or an old one
            self._look()
        else:
            self._loop.add_reader(self._handle, self._told)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None

    def _told(self) -> None:
        self.close()
        self._exited()

    def _look(self) -> None:
        if self._process.poll() is None:
            self._timer = self._loop.call_later(POLL_S, self._look)
        else:
            self._exited()


def environment(context: Context, extra: Mapping[str, str]) -> dict[str, str]:
    """The node's environment, the service's, and the run's."""
    inherited = {name: value for name, value in os.environ.items() if name not in _PRIVATE}
    return {**inherited, **extra, **variables(context), **family.marks(context.run_id, owner_of(context))}


def owner_of(context: Context) -> str | None:
    """Whose a task is while it runs; None for a slot, whose run has an id of its own."""
    return None if context.task is None else context.task.owner


def variables(context: Context) -> dict[str, str]:
    """What the environment says of a run."""
    return {
        family.RUN_ID: context.run_id,
        "RAPTOR_SERVICE": context.service,
        "RAPTOR_ATTEMPT": str(context.attempt),
        "RAPTOR_SLOT": stamp(context.planned),
        "RAPTOR_KEY": context.key,
    }


def how_it_ended(ended: Ended) -> str:
    """exit status 3, killed by SIGSEGV: of one that ended by itself, so that a SIGKILL was not ours."""
    status = ended.status
    if status is None:
        return "it could not be killed"
    if status >= 0:
        return f"exit status {status}" + (f": {OUT_OF_MEMORY}" if ended.out_of_memory else "")
    if status == -signal.SIGKILL:
        return OUT_OF_MEMORY if ended.out_of_memory else "killed by signal 9 (not by raptor)"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def how_it_timed_out(timeout_s: float | None, ended: Ended) -> str:
    said = f"timed out after {timeout_s:g} s"
    if ended.status is None:
        return f"{said}, and could not be killed"
    return f"{said}; it ignored SIGTERM and was killed" if ended.forced else said


async def _within(seconds: float | None, *events: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(seconds):
            for event in events:
                await event.wait()
    except TimeoutError:
        return False
    return True
