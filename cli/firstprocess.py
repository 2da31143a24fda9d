"""Being process 1 of a container: the node runs in a child, and whatever is orphaned is waited for here."""

from __future__ import annotations

import os
import signal

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def step_aside() -> None:
    """As process 1, fork: the child returns and goes on, the parent reaps and passes signals on until it ends.

    Zombies are reaped by somebody who has no children of interest but one: in the node itself a wait for any child
    would take the exit status that a runner waits for.
    """
    if os.getpid() != 1:
        return
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # a Ctrl-C at the terminal comes once, passed on, not twice
        return

    def forward(number: int, frame: object) -> None:
        os.kill(child, number)

    for number in FORWARDED:
        signal.signal(number, forward)
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) % 256 if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
