"""One target in a process of its own, so that not even a crash of the interpreter goes unseen.

`Tally` is shared with whoever started it: how far it is, and the input that it looks at.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import resource
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.fuzz.target import Target

HEAD = struct.Struct("<QQI")  # inputs, cases, bytes of the input
ROOM = 1 << 16
LARGE = 64 << 20  # bytes that one input may take
CEILING = 4 << 30


class Tally:
    """Counts in a file that is mapped by two processes."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(HEAD.size + ROOM))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.inputs, self.cases, _ = HEAD.unpack_from(self._map)

    def begin(self, data: bytes) -> None:
        self.inputs += 1
        kept = data[:ROOM]
        HEAD.pack_into(self._map, 0, self.inputs, self.cases, len(kept))
        self._map[HEAD.size : HEAD.size + len(kept)] = kept

    def end(self, cases: int) -> None:
        self.cases += cases
        HEAD.pack_into(self._map, 0, self.inputs, self.cases, 0)

    def read(self) -> tuple[int, int, bytes]:
        inputs, cases, length = HEAD.unpack_from(self._map)
        return inputs, cases, self._map[HEAD.size : HEAD.size + length]


class Watch:
    """Checks inputs of a target, and tells of what must not be: once for each place it comes from."""

    def __init__(self, target: Target, tally: Tally, found: Callable[[bytes, str], None]) -> None:
        self._target = target
        self._tally = tally
        self._found = found
        self._places: set[tuple[str, ...]] = set()
        self._peak = _peak()

    def check(self, data: bytes) -> None:
        self._tally.begin(data)
        begun = time.perf_counter()
        try:
            cases = self._target.check(data)
        except Exception as error:
            self._tell(data, (type(error).__name__, *_place(error.__traceback__)), f"{type(error).__name__}: {error}")
            cases = 1
        self._tally.end(1 if cases is None else cases)
        slow_s = self._target.slow_s
        if time.perf_counter() - begun > slow_s and (took := self._least(data)) > slow_s:
            self._tell(data, ("slow",), f"took {took:.3f} s of the processor")
        before, self._peak = self._peak, _peak()
        if self._peak - before > LARGE:
            self._tell(data, ("large",), f"took {(self._peak - before) >> 20} MiB")

    def _least(self, data: bytes) -> float:
        """The processor's time for it, at the best of three: a busy machine is no surprise."""
        taken: list[float] = []
        for _ in range(3):
            begun = time.thread_time()
            try:
                self._target.check(data)
            except Exception:
                pass  # told already
            taken.append(time.thread_time() - begun)
        return min(taken)

    def _tell(self, data: bytes, place: tuple[str, ...], what: str) -> None:
        if place not in self._places and len(self._places) < 20:
            self._places.add(place)
            self._found(data, what)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _place(trace: TracebackType | None) -> tuple[str, ...]:
    """The line of ours that it came through last."""
    ours = [frame for frame in traceback.extract_tb(trace) if "raptor" in frame.filename or "state" in frame.filename]
    return (f"{ours[-1].filename}:{ours[-1].lineno}",) if ours else ()


def keep(folder: Path, target: str, data: bytes) -> Path:
    """The input as a file that replays it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def main(name: str, seed: int, seconds: float, folder: Path, guided: bool, most: int) -> None:
    """Runs until the time is over, or for `most` inputs in all (0: any number).

    Findings are told on stdout, one a line: the file, and what happened.
    """
    resource.setrlimit(resource.RLIMIT_AS, (CEILING, CEILING))
    if guided:
        import atheris

        with atheris.instrument_imports(include=["raptor", "cronsim", "tomllib"]):
            from tests.fuzz.targets import TARGETS
    else:
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]

    def found(data: bytes, what: str) -> None:
        print(keep(folder / "found", name, data), what.replace("\n", " ")[:500], flush=True)

    tally = Tally(folder / f"{name}.tally")
    watch = Watch(target, tally, found)
    inputs = folder / "inputs" / name
    inputs.mkdir(parents=True, exist_ok=True)
    if guided:
        _guided(target, watch, seed, seconds, inputs)
    else:
        end = time.monotonic() + seconds
        _plain(target, watch, seed, inputs, lambda: time.monotonic() >= end or tally.inputs >= most > 0)


def _plain(target: Target, watch: Watch, seed: int, inputs: Path, is_over: Callable[[], bool]) -> None:
    from tests.fuzz.mutate import Mutator

    corpus = [*target.corpus(), *(path.read_bytes() for path in sorted(inputs.iterdir()))]
    for data in corpus:
        watch.check(data)
    endless = target.inputs(seed) if target.inputs is not None else Mutator(seed, corpus, target.words)
    for data in endless:
        watch.check(data)
        if is_over():
            return


def _guided(target: Target, watch: Watch, seed: int, seconds: float, inputs: Path) -> None:
    import atheris

    for number, data in enumerate(target.corpus()):
        (inputs / f"seed-{number}").write_bytes(data)
    words = inputs.parent / f"{target.name}.words"
    escaped = ["".join(f"\\x{byte:02x}" for byte in word) for word in target.words]
    words.write_text("".join(f'"{word}"\n' for word in escaped))
    options: dict[str, object] = {
        "seed": seed % 2**31 or 1, "max_total_time": max(1, int(seconds)), "max_len": 4096, "rss_limit_mb": 0,
        "timeout": 120, "verbosity": 0, "print_final_stats": 0, "artifact_prefix": f"{inputs.parent}/",
    }  # fmt: skip
    if target.words:
        options["dict"] = words
    arguments = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, os.fspath(inputs)], watch.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(
        sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]), sys.argv[5] == "guided", int(sys.argv[6])
    )
