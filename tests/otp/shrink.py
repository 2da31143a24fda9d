"""Makes a diverging script smaller: what can be left out while it still diverges is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.otp.answers import Divergence
from tests.otp.scripts import TEMPLATE, Script

Check = Callable[[Sequence[Script]], Sequence[Divergence | None]]


def shrink(found: Divergence, check: Check) -> Divergence:
    """The smallest that one omission after another leads to. `check` is given many at a time."""
    while True:
        smaller = [divergence for divergence in check(list(_smaller(found))) if divergence]
        if not smaller:
            return found
        found = smaller[0]


def _smaller(found: Divergence) -> Iterator[Script]:
    """Scripts with something left out, the boldest first."""
    script = found.script
    if found.at < len(script.ops):
        yield replace(script, ops=script.ops[: found.at])
    for at, op in enumerate(script.ops):
        yield replace(script, ops=script.ops[:at] + script.ops[at + 1 :])
        for aside in range(len(op.during)):
            less = replace(op, during=op.during[:aside] + op.during[aside + 1 :])
            yield replace(script, ops=(*script.ops[:at], less, *script.ops[at + 1 :]))
    children = script.tree.children
    for at, child in enumerate(children):
        if child.id != TEMPLATE:
            yield replace(script, tree=replace(script.tree, children=children[:at] + children[at + 1 :]))
        if child.starts:
            plain = (*children[:at], replace(child, starts=()), *children[at + 1 :])
            yield replace(script, tree=replace(script.tree, children=plain))
