"""Runs scripts on a real Erlang/OTP: many at once, in one `erl`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.otp.answers import Steps, normal
from tests.otp.scripts import Script, to_json

SOURCES = [str(path) for path in Path(__file__).parent.glob("*.erl")]
# One scheduler, so that signals arrive in one order; and nothing of the user's own.
_ERL = ("erl", "-noshell", "-noinput", "-boot", "no_dot_erlang", "+S", "1:1", "+sbwt", "none")
_BATCH_TIMEOUT_S = 600


class NoErlang(Exception):
    """There is no Erlang/OTP here: run `make servers`."""


@contextmanager
def compiled() -> Iterator[Path]:
    """A folder with the Erlang side made ready."""
    if not (shutil.which("erl") and shutil.which("erlc")):
        raise NoErlang(NoErlang.__doc__)
    with tempfile.TemporaryDirectory(prefix="raptor-otp-") as folder:
        subprocess.run(["erlc", "-o", folder, *SOURCES], check=True)
        yield Path(folder)


def ask(folder: Path, scripts: Sequence[Script]) -> list[Steps | str]:
    """OTP's answers in normal form; a string instead says why the rig failed on that script."""
    lines = [json.dumps(to_json(script), separators=(",", ":")) for script in scripts]
    with tempfile.TemporaryDirectory(dir=folder) as batch:
        asked, answered = Path(batch, "scripts"), Path(batch, "answers")
        asked.write_text("\n".join(lines))
        subprocess.run(
            [*_ERL, "-pa", str(folder), "-run", "raptor_otp", "main", str(asked), str(answered)],
            check=True,
            timeout=_BATCH_TIMEOUT_S,
            env={**os.environ, "ERL_CRASH_DUMP_SECONDS": "0"},
        )
        answers = [json.loads(line) for line in answered.read_text().splitlines()]
    return [answer if isinstance(answer, str) else normal(answer) for answer in answers]


def release() -> str:
    """Which OTP it is."""
    tell = "io:put_chars(erlang:system_info(otp_release)), halt()."
    done = subprocess.run([*_ERL, "-eval", tell], check=True, capture_output=True, text=True)
    return done.stdout
