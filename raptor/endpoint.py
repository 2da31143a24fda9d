"""Where to listen: `127.0.0.1:9464`, `[::1]:9464`, `localhost:9464`."""

from __future__ import annotations

import re
from typing import NamedTuple

from raptor.errors import BadInput

_WRITTEN = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")


class Endpoint(NamedTuple):
    host: str
    port: int  # 0: any that is free

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_endpoint(text: object) -> Endpoint:
    """A host and a port. Both are needed: nothing is opened to the world by leaving one out."""
    found = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
    if found is None or int(found["port"]) > 65535:
        raise BadInput(f"a host and a port such as 127.0.0.1:9464 are expected, not {text!r}")
    return Endpoint(found["six"] or found["host"], int(found["port"]))
