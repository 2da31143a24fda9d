"""Functions for interpreters that take many runs: what they leave behind is there for the next run."""

from __future__ import annotations

import ctypes
import fcntl
import io
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from raptor.runners import Context

SEEN: list[Any] = []
LATE = threading.Event()
THREADS: list[threading.Thread] = []


def work(ctx: Context) -> list[int]:
    """Its process, and which run of it this is; what it does besides is asked for by name."""
    SEEN.append(ctx.run_id)
    if ctx.data is not None:
        globals()[ctx.data](ctx)
    return [os.getpid(), len(SEEN)]


async def work_async(ctx: Context) -> list[int]:
    return work(ctx)


def raise_error(ctx: Context) -> None:
    raise ValueError("an ordinary one")


def leave_by_exception(ctx: Context) -> None:
    raise SystemExit("enough")


def interrupt(ctx: Context) -> None:
    raise KeyboardInterrupt


def run_out_of_memory(ctx: Context) -> None:
    raise MemoryError


def tell_place(ctx: Context) -> None:
    names = ("RUN_ID", "SERVICE", "ATTEMPT", "SLOT", "KEY")
    print(*(os.environ[f"RAPTOR_{name}"] for name in names), os.getcwd(), "RAPTOR_ROOM" in os.environ)
    sys.stdout.flush()
    subprocess.run(["sh", "-c", "echo child of $RAPTOR_RUN_ID"], check=True)
    os.chdir("/")


def print_by_all_means(ctx: Context) -> None:
    print("a line")
    os.write(1, b"raw\n")
    ctypes.CDLL(None).printf(b"from C\n")
    ctx.log.info("logged")
    print("half a line", end="")
    sys.stdout = io.StringIO()
    print("into the stream of this run")


def print_into_large_pipe(ctx: Context) -> None:
    fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1024 * 1024)
    os.write(1, b"x" * 900_000)


def print_run_id(ctx: Context) -> None:
    for _ in range(100):
        print(ctx.run_id)


def close_output(ctx: Context) -> None:
    sys.stdout.close()


def leave_late_thread(ctx: Context) -> None:
    def late() -> None:
        LATE.wait()
        ctx.log.info("late log of %s", ctx.run_id)
        ctx.progress(99, text="late")

    THREADS.append(threading.Thread(target=late, daemon=True))
    THREADS[0].start()


def await_late_thread(ctx: Context) -> None:
    LATE.set()
    THREADS[0].join()
    ctx.progress(1, text="own")


def print_from_thread_for_ever(ctx: Context) -> None:
    def chatter() -> None:
        while True:
            os.write(1, b"chatter\n" * 100)

    threading.Thread(target=chatter, daemon=True).start()


def set_alarm(ctx: Context) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.2)


def outlast_alarm(ctx: Context) -> None:
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def leave_zombie(ctx: Context) -> None:
    os.waitid(os.P_PID, subprocess.Popen(["true"]).pid, os.WEXITED | os.WNOWAIT)


def leave_daemon(ctx: Context) -> None:
    """Two forks, a new session, no output and no environment that would give it away."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, f"{os.getpid()}\n".encode())
            for fd in range(64):
                if fd != write:
                    try:
                        os.close(fd)
                    except OSError:
                        pass
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    print(f"daemon {os.read(read, 20).decode().strip()}")


def hang(ctx: Context) -> None:
    print(f"hanging {os.getpid()}")
    threading.Event().wait()


def wait_for_signal(ctx: Context) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    print(f"waiting {os.getpid()}")
    signal.sigwait([signal.SIGUSR1])


def leave_daemon_and_hang(ctx: Context) -> None:
    leave_daemon(ctx)
    hang(ctx)


def die(ctx: Context) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exit_at_once(ctx: Context) -> None:
    os._exit(3)


def forge(ctx: Context) -> None:
    """Writes an answer of its own into whatever is open."""
    for fd in range(3, 64):
        try:
            os.write(fd, b'{"type": "answer", "info": "forged", "error": null, "token": "", "keep": true}\n')
        except OSError:
            continue


def flood(ctx: Context) -> None:
    for fd in range(3, 64):
        try:
            for _ in range(200):
                os.write(fd, b"rubbish\n" * 1000 + b"{" * 10_000 + b"\n")
        except OSError:
            continue


def steal_requests(ctx: Context) -> None:
    """Reads from whatever is open, for ever, beside the code that waits there."""

    def steal(fd: int) -> None:
        try:
            while os.read(fd, 1):
                pass
        except OSError:
            pass

    for fd in range(3, 64):
        threading.Thread(target=steal, args=(fd,), daemon=True).start()


def close_files(ctx: Context) -> None:
    os.closerange(3, 64)


def fork_and_come_back(ctx: Context) -> None:
    if os.fork():
        os.wait()


def leak(ctx: Context) -> None:
    SEEN.append(os.dup(1))
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def much() -> list[str]:
    return ["x" * 1000] * 2000
