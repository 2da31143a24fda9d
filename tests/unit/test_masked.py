"""Passwords are never shown."""

from __future__ import annotations

import pytest

from raptor.masked import masked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ann:secret@host:5432/db", "postgresql://ann:***@host:5432/db"),
        ("postgresql://ann:se%40:c/ret@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://:secret@host/db", "postgresql://:***@host/db"),
        ("postgresql://ann@host:5432/db", "postgresql://ann@host:5432/db"),
        (
            "postgresql:///db?user=ann&password=secret&sslmode=require",
            "postgresql:///db?user=ann&password=***&sslmode=require",
        ),
        ("host=db password='s e c' user=ann", "host=db password=*** user=ann"),
        ("no way to postgresql://a:b@c/d: refused", "no way to postgresql://a:***@c/d: refused"),
        ("sqlite:///srv/app/.raptor", "sqlite:///srv/app/.raptor"),
    ],
)
def test_the_password_of_an_address_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown
