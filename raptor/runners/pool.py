"""Interpreters that take one run after another, for services with `count` or `live`.

An idle one is kept for the next run of its service. It is ended when its runs or its time are used up, when it has been
idle for a while, when the service is defined anew, and after any run that leaves doubt about it: one that did not end
by itself, that left a process behind, or that wrote where only our own code may.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import sys
from pathlib import Path
from typing import NamedTuple

from raptor.clock import Clock
from raptor.runners import Context, family
from raptor.runners.group import Ended, Group, environment, owner_of
from raptor.runners.mail import Answer, Mail, as_file
from raptor.runners.output import Capture, RunLog
from raptor.service import Service

KEPT = str(Path(__file__).with_name("kept.py"))
IDLE_S = 10.0
BEGIN_S = 5.0  # for one that was idle to take a request: something that an earlier run left may keep it from that
WELL = Ended(status=0, timed_out=False, forced=False)


class Asked(NamedTuple):
    """A run that is asked for."""

    service: Service
    context: Context
    limit_s: float | None
    token: str  # by which an answer is known to be ours


class Pool:
    """The idle interpreters of every service. A run has one to itself; how many run is the lanes' business."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._services: dict[str, Service] = {}  # as each was when it was last asked for
        self._idle: dict[str, list[Interpreter]] = {}
        self._ending: set[asyncio.Task[Ended]] = set()
        self._closed = False

    async def run(self, asked: Asked, request: bytes, log: RunLog) -> tuple[Ended, Answer | None]:
        """Run it in an interpreter that is there, or in a new one; OSError and ValueError are why there is none."""
        self._define(asked.service)
        while True:
            interpreter = self._take(asked) or Interpreter(self._clock, asked, log)
            ended, mail = await interpreter.run(asked, request, log)
            if mail.answer is None and not mail.begun and not ended.timed_out and interpreter.runs > 1:
                continue  # it had died while it was idle, or was as good as dead: the function was not called
            if interpreter.stays:
                self._keep(interpreter)
            return ended, mail.answer

    async def close(self) -> None:
        """End those that are idle; what still runs is not kept."""
        self._closed = True
        for service in list(self._idle):
            self._retire(service)
        if self._ending:
            await asyncio.wait(self._ending)

    def _define(self, service: Service) -> None:
        if self._services.get(service.name) is not service:
            self._retire(service.name)
            self._services[service.name] = service

    def _take(self, asked: Asked) -> Interpreter | None:
        idle = self._idle.get(asked.service.name)
        while idle and family.has_room(asked.context.run_id):
            interpreter = idle.pop()
            interpreter.wake()
            if interpreter.ready and owner_of(asked.context) in (None, interpreter.owner):
                return interpreter
            self._end(interpreter)
        return None

    def _keep(self, interpreter: Interpreter) -> None:
        name = interpreter.service.name
        if self._closed or self._services.get(name) is not interpreter.service:
            self._end(interpreter)
            return
        self._idle.setdefault(name, []).append(interpreter)
        wait_s = min(IDLE_S, interpreter.left_s())
        interpreter.alarm = asyncio.get_running_loop().call_later(wait_s, self._expire, interpreter)

    def _expire(self, interpreter: Interpreter) -> None:
        self._idle[interpreter.service.name].remove(interpreter)
        self._end(interpreter)

    def _retire(self, service: str) -> None:
        for interpreter in self._idle.pop(service, ()):
            interpreter.wake()
            self._end(interpreter)

    def _end(self, interpreter: Interpreter) -> None:
        task = asyncio.ensure_future(interpreter.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class Interpreter:
    """A process that takes requests for one service through a socket, each with pipes of its own."""

    def __init__(self, clock: Clock, asked: Asked, log: RunLog) -> None:
        self.service = asked.service
        self.owner = owner_of(asked.context)  # that its processes are known by
        self.runs = 0
        self.stays = False  # as its last run left it
        self.alarm: asyncio.TimerHandle | None = None
        self._clock = clock
        self._began = clock.monotonic()
        self._control, theirs = socket.socketpair()
        try:
            with theirs:
                self._control.setblocking(False)
                self._control.shutdown(socket.SHUT_RD)  # what a function writes there fails, and blocks nobody
                self._group = Group(
                    clock,
                    [sys.executable, "-P", KEPT, str(theirs.fileno()), str(os.getpid()), self.service.name],
                    log=log,
                    env=family.with_room(environment(asked.context, self.service.env)),
                    cwd=self.service.cwd,
                    pass_fds=(theirs.fileno(),),
                    marks=(family.MARK,),
                )
        except BaseException:
            self._control.close()
            raise

    async def run(self, asked: Asked, request: bytes, log: RunLog) -> tuple[Ended, Mail]:
        """Run it, and end with it unless the process `stays`."""
        self.runs += 1
        self.stays = False
        mail = Mail(asked.context.on_progress, self._group.done, asked.token)
        try:
            pipe = self._send(request, mail, log)
        except (BrokenPipeError, ConnectionResetError):
            return await self.end(), mail
        except OSError:
            await self.end()
            raise
        try:
            in_time = await self._work(asked.limit_s, mail)
            pipe.drain()
            self.stays = in_time and self._fit(mail)
            if self.stays:
                self._group.rest()
                return WELL, mail
            ended = await self.end(in_time)
            pipe.drain()
            never_begun = self.runs > 1 and not mail.begun
            return (ended._replace(timed_out=False) if never_begun else ended), mail
        finally:
            if not self.stays:
                self._control.close()
            pipe.close()

    @property
    def ready(self) -> bool:
        """Whether it can take a run now."""
        return not self._group.exited and self.left_s() > 0

    def left_s(self) -> float:
        """How long it may yet live."""
        return self._began + (self.service.live_s or math.inf) - self._clock.monotonic()

    def wake(self) -> None:
        if self.alarm is not None:
            self.alarm.cancel()

    async def end(self, in_time: bool = True) -> Ended:
        """Let it go: it takes the end of its requests for its own."""
        self._control.close()
        return await self._group.end(in_time)

    async def _work(self, limit_s: float | None, mail: Mail) -> bool:
        """-> whether it was done in time."""
        if self.runs > 1 and (limit_s is None or limit_s > BEGIN_S):
            if await self._group.work(BEGIN_S):
                return True
            if not mail.begun:
                return False
            limit_s = None if limit_s is None else limit_s - BEGIN_S
        return await self._group.work(limit_s)

    def _fit(self, mail: Mail) -> bool:
        if mail.answer is None or not mail.answer.keep or mail.spoilt or self._group.exited:
            return False
        return (not self.service.count or self.runs < self.service.count) and self.left_s() > 0

    def _send(self, request: bytes, mail: Mail, log: RunLog) -> Capture:
        """Hand over the request, the pipe for its answers and, but for the first run, that for its output."""
        read, answers = os.pipe()
        handed = [answers]
        try:
            if self.runs > 1:
                handed.append(self._group.begin(log))
            with as_file(request) as file:
                socket.send_fds(self._control, [b"!"], [file.fileno(), *handed])
        except BaseException:
            os.close(read)
            raise
        finally:
            for fd in handed:
                os.close(fd)
        return Capture(read, mail.take)
