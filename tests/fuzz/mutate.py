"""Inputs out of others: bytes flipped, cut, doubled, joined with another input, or with a word that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

LONGEST = 4096
ODD = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xc3\xa9", b"\xed\xa0\x80", b"-", b"0", b"9" * 20, b" ", b"\n", b"\\u0000")


class Mutator:
    """New inputs for as long as one is asked for; the same seed gives the same ones."""

    def __init__(self, seed: int, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
        self._random = Random(seed)
        self._corpus = list(corpus) or [b""]
        self._words = [*words, *ODD]

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.next()

    def next(self) -> bytes:
        random = self._random
        data = bytearray(
            random.choice(self._corpus) if random.random() < 0.9 else random.randbytes(random.randrange(80))
        )
        for _ in range(1 + int(random.expovariate(0.5))):
            self._change(data)
        return bytes(data[:LONGEST])

    def _change(self, data: bytearray) -> None:
        random = self._random
        at = random.randrange(len(data) + 1)
        end = min(len(data), at + 1 + int(random.expovariate(0.2)))
        match random.randrange(8):
            case 0 if data:
                data[at % len(data)] ^= 1 << random.randrange(8)
            case 1 if data:
                data[at % len(data)] = random.randrange(256)
            case 2:
                del data[at:end]
            case 3:
                data[at:at] = data[at:end] * random.randrange(1, 4)
            case 4:
                data[at:at] = random.choice(self._words)
            case 5:
                data[at:end] = random.choice(self._words)
            case 6:
                other = random.choice(self._corpus)
                cut = random.randrange(len(other) + 1)
                data[at:] = other[cut:]
            case _:
                data[at:at] = random.randbytes(random.randrange(1, 5))
