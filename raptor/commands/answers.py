"""What commands answer with: JSON values."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Answer: TypeAlias = dict[str, Any]


def plain(record: msgspec.Struct) -> Answer:
    """A record with all of its fields, also those that are left out on disk."""
    return {name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(record).items()}
