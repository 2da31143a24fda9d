"""A loop that hangs in a real node: its stack at once, no sign of life to systemd, and an incident afterwards."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.system.cli import PATIENCE_S, Project

pytestmark = pytest.mark.timeout(120)

BEAT_S = 0.1

SERVICES = '''
import pathlib, time
from raptor import service

HERE = pathlib.Path(__file__).parent

@service(every="1h")
async def rude():
    """Blocks the loop until the file `gate` is there."""
    while not (HERE / "gate").exists():
        time.sleep(0.02)
'''


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path, services=SERVICES)
    yield made
    made.close()


def drain(heard: socket.socket) -> None:
    heard.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            heard.recv(4096)


def test_a_node_that_hangs_says_where_and_gives_no_sign_of_life_until_it_is_back(project: Project) -> None:
    project.ok("schedule", "main", "rude")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.settimeout(PATIENCE_S)
        heard.bind(str(project.folder / "notify"))
        told = {"NOTIFY_SOCKET": str(project.folder / "notify"), "WATCHDOG_USEC": str(round(2e6 * BEAT_S))}
        node = project.start("main", "--interval", "1h", **told)
        node.wait_for("the event loop has been stuck for")
        node.wait_for("in rude")  # while it hangs
        drain(heard)
        heard.settimeout(5 * BEAT_S)
        with pytest.raises(TimeoutError):
            heard.recv(4096)
        heard.settimeout(PATIENCE_S)
        (project.folder / "gate").touch()
        node.wait_for("! warning: something blocked the event loop for")
        assert heard.recv(4096) == b"WATCHDOG=1"
        node.signal(signal.SIGTERM)
        assert node.end() == 0
    events = [json.loads(line) for line in (project.home / "raptor.log").read_text().splitlines()]
    assert any("in rude" in event.get("text", "") for event in events if event["event"] == "log")
    assert "loop_resumed" in {event["event"] for event in events}
