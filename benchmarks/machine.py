"""What the numbers were taken on: machine, versions, commit."""

import os
import platform
import re
import sqlite3
import subprocess
from importlib import metadata
from pathlib import Path

from benchmarks import otp
from benchmarks.postgres import node_peers
from tests.servers import programs

ROOT = Path(__file__).resolve().parent.parent


def describe() -> dict[str, str]:
    return {
        "machine": f"{os.cpu_count()} cores, {_processor()}, {platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "uvloop": _version("uvloop"),
        "Pykka": _version("pykka"),
        "APScheduler": f"{_version('apscheduler')}, SQLAlchemy {_version('sqlalchemy')}",
        "Huey": _version("huey"),
        "SQLite": sqlite3.sqlite_version,
        "OTP": otp.version(),
        "PostgreSQL": f"{_postgres()}, psycopg {_version('psycopg')}",
        "pgqueuer": f"{_version('pgqueuer')}, asyncpg {_version('asyncpg')}",
        "Procrastinate": _version("procrastinate"),
        **node_peers.versions(),
        "commit": _commit(),
        "load, at the start": load(),
    }


def load() -> str:
    """How busy the machine has been for the last minute; the benchmarks themselves count for about 1."""
    return f"{os.getloadavg()[0]:.1f}"


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _postgres() -> str:
    try:
        told = subprocess.run([programs() / "postgres", "--version"], capture_output=True, text=True, check=True)
    except (AssertionError, OSError, subprocess.CalledProcessError):
        return "not installed"
    return told.stdout.split()[2]


def _commit() -> str:
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return told.stdout.strip()
