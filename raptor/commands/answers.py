"""What commands are asked with and answer with: JSON values."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

Answer: TypeAlias = dict[str, Any]
Id: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Few: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1000)]
"""So many that whoever waits behind it does not notice."""


def plain(record: msgspec.Struct) -> Answer:
    """A record with all of its fields, also those that are left out on disk."""
    return {name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(record).items()}
