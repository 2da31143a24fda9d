"""Processes that work side by side, one batch each: what a world leaves behind goes with its process.

Dead nodes cannot be collected as they lie (their coroutines would run their `finally`), and what they leave slows
everything down that comes after them; a process ends at once.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import selectors
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from tests.simulation.campaign import Batch, Campaign


@dataclass(frozen=True)
class Done:
    """What a process says before it ends."""

    campaign: Campaign
    processor_s: float


@dataclass(frozen=True)
class Hand:
    pid: int
    batch: Batch
    pipe: BinaryIO


class Crew:
    """Up to `jobs` processes; those that never answer are told as violations."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._selector = selectors.DefaultSelector()
        self._hands = 0

    @property
    def is_full(self) -> bool:
        return self._hands >= self._jobs

    @property
    def is_idle(self) -> bool:
        return not self._hands

    def begin(self, batch: Batch, until: float) -> None:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _work(batch, until, writing)
        os.close(writing)
        pipe = os.fdopen(reading, "rb")
        self._selector.register(pipe, selectors.EVENT_READ, Hand(pid, batch, pipe))
        self._hands += 1

    def done(self) -> Iterator[tuple[Batch, Done]]:
        """Wait until somebody has finished."""
        for key, _ in self._selector.select():
            hand: Hand = key.data
            said = hand.pipe.read()
            self._selector.unregister(hand.pipe)
            hand.pipe.close()
            _, status = os.waitpid(hand.pid, 0)
            self._hands -= 1
            yield hand.batch, pickle.loads(said) if said else _lost(hand.batch, status)


def _work(batch: Batch, until: float, writing: int) -> None:
    """In a process of its own, which does not return."""
    code = 1
    try:
        gc.disable()
        began = time.process_time()
        campaign = Campaign(tell=_say_nothing)
        campaign.work(batch, until)
        with open(writing, "wb") as pipe:
            pickle.dump(Done(campaign, time.process_time() - began), pipe)
        code = 0
    finally:
        os._exit(code)


def _lost(batch: Batch, status: int) -> Done:
    campaign = Campaign(tell=_say_nothing)
    campaign.found(batch.cases[0], f"the process of its batch ended with {os.waitstatus_to_exitcode(status)}")
    return Done(campaign, 0.0)


def _say_nothing(text: str) -> None:
    pass


def used_mb() -> int:
    """The most memory that a process of the crew has had."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
