"""Addresses as they may be shown: without their password."""

from __future__ import annotations

import re

_USER = re.compile(r"(?<=://)([^:/@?#\s]*):[^@\s]*(?=@)")
_WORD = re.compile(r"(?i)\b(password|passfile|sslpassword)=('[^']*'|[^&\s]*)")


def masked(text: str) -> str:
    """`postgresql://ann:secret@host/db` -> `postgresql://ann:***@host/db`; also in the midst of a text."""
    return _WORD.sub(r"\1=***", _USER.sub(r"\1:***", text))
