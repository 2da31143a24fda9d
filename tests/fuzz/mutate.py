"""Inputs out of others: bytes flipped, cut, doubled, joined with another input, or with a word that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from random import Random

LONGEST = 4096
ODD = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xc3\xa9", b"\xed\xa0\x80", b"-", b"0", b"9" * 20, b" ", b"\n", b"\\u0000")
POOL = 1024  # made inputs that are changed again
POOLED = 1024  # bytes of one of them at most: what only grows is slow, and no better
SEEN = 1 << 27  # bits, one for each hash that was given


class Mutator:
    """New inputs for as long as one is asked for, no two alike; the same seed gives the same ones.

    A few are changed again, so that in the long run it comes further from the corpus than one change does.
    """

    def __init__(self, seed: int, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
        self._random = Random(seed)
        self._corpus = list(corpus) or [b""]
        self._words = [*words, *ODD]
        self._pool: list[bytes] = []
        self._seen = bytearray(SEEN // 8)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.next()

    def next(self) -> bytes:
        while True:
            data = self._made()
            # A hash that was seen may be that of another input, which is then left out; none comes twice.
            place, bit = divmod(hash(data) % SEEN, 8)
            if not self._seen[place] >> bit & 1:
                self._seen[place] |= 1 << bit
                return data

    def _made(self) -> bytes:
        random = self._random.random
        chance = random()
        if chance < 0.1:
            data = bytearray(self._random.randbytes(int(random() * 80)))
        else:
            known = self._pool if self._pool and chance < 0.4 else self._corpus
            data = bytearray(known[int(random() * len(known))])
        for _ in range(1 + int(-2 * log(1 - random()))):
            self._change(data)
        made = bytes(data[:LONGEST])
        if chance > 0.9 and len(made) <= POOLED:
            if len(self._pool) < POOL:
                self._pool.append(made)
            else:
                self._pool[int(random() * POOL)] = made
        return made

    def _change(self, data: bytearray) -> None:
        random = self._random.random
        at = int(random() * (len(data) + 1))
        end = min(len(data), at + 1 + int(-5 * log(1 - random())))
        match int(random() * 8):
            case 0 if data:
                data[at % len(data)] ^= 1 << int(random() * 8)
            case 1 if data:
                data[at % len(data)] = int(random() * 256)
            case 2:
                del data[at:end]
            case 3:
                data[at:at] = data[at:end] * (1 + int(random() * 3))
            case 4:
                data[at:at] = self._words[int(random() * len(self._words))]
            case 5:
                data[at:end] = self._words[int(random() * len(self._words))]
            case 6:
                other = self._corpus[int(random() * len(self._corpus))]
                data[at:] = other[int(random() * (len(other) + 1)) :]
            case _:
                data[at:at] = self._random.randbytes(1 + int(random() * 4))
