"""Erlang/OTP, measured by otp.erl in a process of its own. Without an Erlang everything else still runs."""

import shutil
import statistics
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from benchmarks import rounds

ABSENT = "run make servers"
SOURCE = Path(__file__).with_name("otp.erl")

Samples = dict[str, list[float]]


def version() -> str:
    if not _there():
        return ABSENT
    asked = "io:format('~s, erts ~s', [erlang:system_info(otp_release), erlang:system_info(version)]), halt()."
    return _run("erl", "-noshell", "-eval", asked)


def measure(subject: str, *arguments: int) -> Samples | None:
    """Have otp.erl measure a subject; -> its samples by name, None without an Erlang."""
    if not _there():
        return None
    words = [subject, *map(str, arguments)]
    said = _run("erl", "-noshell", "+P", "1000000", "-pa", _compiled().name, "-run", "otp", "main", *words)
    lines = (line.split() for line in said.splitlines())
    return {name: [float(value) for value in values] for name, *values in lines}


def merged(runs: list[Samples | None]) -> Samples | None:
    """The samples of several runs as those of one."""
    merged: Samples = {}
    for samples in runs:
        if samples is None:
            return None
        for name, values in samples.items():
            merged.setdefault(name, []).extend(values)
    return merged


def median(samples: Samples | None, name: str) -> float | str:
    return ABSENT if samples is None else statistics.median(samples[name])


def fast(samples: Samples | None, name: str) -> float | str:
    return ABSENT if samples is None else rounds.fast(samples[name])


def percentile(samples: Samples | None, name: str, percent: int) -> float | str:
    return ABSENT if samples is None else rounds.percentile(samples[name], percent)


def _there() -> bool:
    return shutil.which("erl") is not None and shutil.which("erlc") is not None


@cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="raptor-otp-")
    _run("erlc", "-o", folder.name, str(SOURCE))
    return folder


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
