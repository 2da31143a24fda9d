"""Functions that do their worst. Each is run in a process of its own, and by name."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

from raptor.runners import Context


def hello(ctx: Context) -> dict[str, Any]:
    print("printed")
    ctx.log.info("logged")
    ctx.progress(1, 2, "half\nway")
    return {"attempt": ctx.attempt, "data": ctx.data, "key": ctx.key, "service": ctx.service}


async def hello_async(ctx: Context) -> str:
    await asyncio.sleep(0)
    return f"async {ctx.run_id}"


def environment() -> list[str]:
    return [os.environ[f"RAPTOR_{name}"] for name in ("SERVICE", "ATTEMPT", "SLOT", "KEY")]


def place() -> list[Any]:
    return [os.getcwd(), os.getsid(0) == os.getpid(), sys.stdin.read(), "pytest" in sys.modules]


def hang() -> None:
    print("hanging", os.getpid())
    threading.Event().wait()


def hang_deaf() -> None:
    """Takes no notice of SIGTERM, and hangs in C, with the interpreter's lock held."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf")
    ctypes.PyDLL(None).pause()


async def hang_async() -> None:
    print("hanging", os.getpid())
    await asyncio.Event().wait()


def segfault() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


def leave(status: int = 7) -> None:
    os._exit(status)


def kill_own_group() -> None:
    os.killpg(0, signal.SIGKILL)


def kill_parent_politely() -> None:
    """What a careless script does: signal its parent's group. The node's is another one."""
    os.killpg(os.getpgid(0), signal.SIGTERM)


def print_much(amount: int = 200_000_000) -> None:
    chunk = b"y\n" * 32768
    for _ in range(amount // len(chunk)):
        os.write(1, chunk)
    os.write(1, b"the end\n")


def print_rubbish() -> None:
    os.write(1, os.urandom(100_000) + b"\0\x1b[2J\xff\nend")


def fork_and_return() -> str:
    """Both sides come back from the function, the copy first."""
    copy = os.fork()
    if copy == 0:
        return "copy"
    os.waitpid(copy, 0)
    return "parent"


def fork_many() -> None:
    for _ in range(20):
        if os.fork() == 0:
            signal.pause()


def daemonise() -> str:
    """By the book: fork, new session, fork again; but the output stays open."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(write, b"up")
            while True:
                signal.pause()
        os._exit(0)
    os.read(read, 2)
    return "left a daemon"


def leave_thread() -> str:
    """A thread that Python waits for at exit, for ever."""
    threading.Thread(target=threading.Event().wait).start()
    return "returned"


def leak() -> str:
    kept = [socket.socket() for _ in range(50)]
    for _ in range(20):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    subprocess.Popen(["true"])
    if os.fork() == 0:
        os._exit(0)  # nobody waits for it
    os.dup2(1, 400)
    return f"leaked {len(kept)}"


def flood_answers() -> None:
    """Writes rubbish into every pipe that it finds."""
    for fd in range(3, 64):
        try:
            for _ in range(200):
                os.write(fd, b"rubbish\n" * 1000 + b'{"type": "answer", "info": 5}\n' + b"{" * 10_000 + b"\n")
        except OSError:
            continue


def flood_progress(ctx: Context) -> None:
    for number in range(50_000):
        ctx.progress(number, 50_000)


def close_everything() -> None:
    os.closerange(0, 1024)


def eat_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    kept = []
    while True:
        kept.append(bytearray(2**24))


def raise_named(ctx: Context) -> None:
    raise {
        "SystemExit": SystemExit(0),
        "KeyboardInterrupt": KeyboardInterrupt(),
        "GeneratorExit": GeneratorExit(),
        "StopIteration": StopIteration(),
        "RecursionError": RecursionError(),
        "MemoryError": MemoryError(),
        "Unprintable": Unprintable(),
        "Odd": Odd(),
        "CancelledError": asyncio.CancelledError(),
    }[ctx.data]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit("from __str__")


class Odd(BaseException):
    """Neither an Exception nor one that Python knows."""


class Group:
    @staticmethod
    def inner() -> str:
        return "inner"
