"""Kill -9 in the middle of a cycle, and the next start finishes it: what was done is not done again.

    python examples/crash_and_resume.py

It starts `raptor` as a real process with three services, kills it while the second one works, and starts it anew.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SERVICES = """
import pathlib, time
from raptor import service

HERE = pathlib.Path(__file__).parent

def note(name):
    with open(HERE / "ran", "a") as out:
        out.write(name + "\\n")

@service(every="1h")
def first():
    note("first")

@service(every="1h", isolate=True)
def second():
    note("second begins")
    while not (HERE / "go on").exists():
        time.sleep(0.02)
    note("second ends")

@service(every="1h")
def third():
    note("third")
"""

TOML = 'module = "services"\n[schedulers.main]\nservices = ["first", "second", "third"]\n'


def start(folder: Path, *more: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "raptor", "start", "main", "--interval", "1h", *more]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True, env=os.environ | {"NO_COLOR": "1"})


def tell_until(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        print("   ", line, end="", flush=True)
        if text in line:
            return


def main(folder: Path) -> None:
    (folder / "raptor.toml").write_text(TOML)
    (folder / "services.py").write_text(SERVICES)
    print("start:")
    process = start(folder)
    tell_until(process, "second  ▶ started")
    while "second begins" not in (folder / "ran").read_text():
        time.sleep(0.02)
    print("kill -9, and start again:", flush=True)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (folder / "go on").touch()
    process = start(folder, "--cycles", "1")
    tell_until(process, "stopped")
    process.communicate()
    print("what ran:", ", ".join((folder / "ran").read_text().splitlines()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
