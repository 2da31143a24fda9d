"""Python functions in a process of their own: an interpreter that is told which function by name.

Nothing it does reaches the node: not a crash, not `os._exit`, not a loop that never ends. What it prints is captured.
Each run has a fresh one, unless `count` or `live` let one take many: see pool.py.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from raptor.clock import Clock
from raptor.runners import Context, time_limit
from raptor.runners.group import Ended, Group, environment, how_it_ended, how_it_timed_out, variables
from raptor.runners.mail import Answer, Mail, as_file, write_request
from raptor.runners.output import Capture, Recording, RunLog
from raptor.runners.pool import Asked, Pool
from raptor.runners.text import TRACEBACK, lines, one_line
from raptor.service import Service
from raptor.task import Outcome, Result

CHILD = str(Path(__file__).with_name("child.py"))


class ProcessRunner:
    """Runs functions that another interpreter can import by name, sync or async."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pool = Pool(clock)

    async def run(self, service: Service, context: Context, log: RunLog) -> Result:
        assert service.function is not None
        asked = Asked(service, context, time_limit(service), secrets.token_hex(8))
        async with Recording(log, context, self._clock):
            try:
                request = write_request(
                    service.function, context, service.batch is not None, token=asked.token, env=variables(context)
                )
            except ValueError as error:
                return _refused(str(error))
            try:
                take = self._pool.run if service.takes_many else self._ask
                ended, answer = await take(asked, request, log)
            except (OSError, ValueError) as error:
                return _refused(f"its process could not be started: {error}")
            return _result(ended, answer, asked.limit_s, log.tail())

    async def close(self) -> None:
        await self._pool.close()

    async def _ask(self, asked: Asked, request: bytes, log: RunLog) -> tuple[Ended, Answer | None]:
        service, context = asked.service, asked.context
        read, write = os.pipe()
        try:
            with as_file(request) as stdin:
                group = Group(
                    self._clock,
                    [sys.executable, "-P", CHILD, str(write), str(os.getpid()), service.name, context.run_id],
                    log=log,
                    env=environment(context, service.env),
                    cwd=service.cwd,
                    stdin=stdin,
                    pass_fds=(write,),
                )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        mail = Mail(context.on_progress, group.done, asked.token)
        pipe = Capture(read, mail.take)
        try:
            ended = await group.live(asked.limit_s)
        finally:
            pipe.drain()
            pipe.close()
        return ended, mail.answer


def _refused(why: str) -> Result:
    return Result(outcome=Outcome.FAILED, info=one_line(why), error=why)


def _result(ended: Ended, answer: Answer | None, limit_s: float | None, tail: str) -> Result:
    if ended.timed_out:
        why = how_it_timed_out(limit_s, ended)
        return Result(outcome=Outcome.TIMED_OUT, info=why, error=why, tail=tail)
    if answer is None:
        why = how_it_ended(ended)
        if ended.status is not None and ended.status >= 0:
            why = f"its process ended before the function did: {why}"
        return Result(outcome=Outcome.FAILED, info=why, error=why, tail=tail, died=True)
    info = one_line(answer.info)
    if answer.error is None:
        return Result(outcome=Outcome.OK, info=info, tail=tail, value=answer.value, decision=answer.decision)
    return Result(outcome=Outcome.FAILED, info=info, error=lines(answer.error, TRACEBACK), tail=tail)
