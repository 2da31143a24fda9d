"""Cells of a page whose head is broken: none is passed over."""

from __future__ import annotations

import random

import pytest

from raptor.state.salvage import TABLE_LEAF, Cell, Pages, Unreadable

SIZE = 512


@pytest.mark.parametrize("noise", [1, 4, 16, 256])
def test_a_cell_is_found_wherever_it_begins(noise: int) -> None:
    """As if every place were tried: short and long varints, and what only looks like a cell."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for _ in range(40):
        image = bytearray(rng.randrange(noise) for _ in range(SIZE))
        for at in range(0, SIZE, 64):
            image[at : at + 20] = rng.choice(
                (b"\x06\x01\x02\x0fa", b"\x06\x81\x01\x02\x0fa", b"\x80\x06\x01\x02\x0fa", b"\x06\x01\x80\x03\x0fa",
                 b"\x01\x02\x02\x0fa", b"\x02\x01\x02\x0d", b"\x81\x00\x01\x03\x0f\x81\x70a")
            ).ljust(20, b"a")  # fmt: skip
        pages = Pages(bytes(image), b"")
        pages.size, pages.images = SIZE, {1: bytes(image)}
        assert list(pages._strewn(1, bytes(image))) == _everywhere(pages, bytes(image)), f"seed {seed}"


def _everywhere(pages: Pages, image: bytes) -> list[Cell]:
    found: list[Cell] = []
    for at in range(len(image)):
        try:
            cell = pages._cell(1, image, at, TABLE_LEAF)
        except Unreadable:
            continue
        if any(isinstance(value, str) for value in cell.values):
            found.append(cell)
    return found
