"""All targets, by name."""

from __future__ import annotations

from tests.fuzz import documents, dst, frames, pages, payloads, rows, texts, wheels
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (texts, documents, frames, payloads, rows, wheels, pages, dst)
    for target in module.TARGETS
}
