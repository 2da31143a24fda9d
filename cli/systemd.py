"""sd_notify: telling systemd that the node is ready, what it does, and that it is alive. Nothing without systemd."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


class Systemd:
    """The socket that systemd named, if it did."""

    def __init__(self, address: str | None = None, watchdog_usec: str | None = None) -> None:
        address = os.environ.get("NOTIFY_SOCKET") if address is None else address
        usec = os.environ.get("WATCHDOG_USEC", "") if watchdog_usec is None else watchdog_usec
        # An address that begins with @ is an abstract one.
        self._address = f"\0{address[1:]}" if address and address.startswith("@") else address
        self.beat_s = int(usec) / 2_000_000 if usec.isdigit() and int(usec) and self._address else None
        self._is_ready = False

    def ready(self, *lines: str) -> None:
        self.tell("READY=1", *lines)
        self._is_ready = True

    def beat(self) -> None:
        """A sign of life, where systemd waits for them; the thread that watches the loop gives it."""
        if self.beat_s is not None and self._is_ready:
            self.tell("WATCHDOG=1")

    def tell(self, *lines: str) -> None:
        """STATUS=..., STOPPING=1."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.sendto("\n".join(lines).encode(), self._address)


UNIT = """\
[Unit]
Description=Raptor scheduler {name}
After=network.target

[Service]
Type=notify
NotifyAccess=all
WorkingDirectory={folder}
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec={stop_s}
WatchdogSec=60
Restart=on-failure
# What cannot get better by being tried again: usage, no such name, already running, refused.
RestartPreventExitStatus=2 4 5 6

[Install]
WantedBy={target}
"""
"""What `raptor systemd-unit` prints."""
