"""The address of a PostgreSQL store: libpq's own URL, and a few options of ours in its query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from raptor.errors import BadInput, did_you_mean
from raptor.masked import masked

SCHEMA = "raptor"
NAMES = re.compile(r"[a-z_][a-z0-9_]{0,50}")
OURS = ("schema", "pooler", "deep_sleep")
YES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class Address(NamedTuple):
    """Where, and how it is used."""

    url: str  # as libpq takes it
    shown: str  # without a password
    schema: str = SCHEMA
    pooler: bool | None = None  # one of transactions: nothing of a session can be relied upon. None: nobody said so
    deep_sleep: bool = True  # after a quiet minute wait for notifications alone


def read(text: str) -> Address:
    """`postgresql://user@host/database?schema=raptor&pooler=transaction&deep_sleep=false`; the rest is libpq's."""
    try:
        text.encode()
        parts = urlsplit(text)
    except ValueError as error:
        raise BadInput(f"store {masked(text)!r}: this is no address: {error}") from None
    if not text.isprintable():  # urlsplit would drop it without a word
        raise BadInput(f"store {masked(text)!r}: an address has no line breaks or control characters: take them out")
    given = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in given if name in OURS}
    rest = [(name, value) for name, value in given if name not in OURS]
    if parts.scheme not in ("postgresql", "postgres"):
        raise BadInput(f"store {masked(text)!r}: an address of PostgreSQL begins with postgresql://")
    schema = check_schema(ours.get("schema", SCHEMA))
    url = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest), ""))
    host = parts.netloc.rpartition("@")[2]
    who = f"{parts.username}@" if parts.username else ""
    shown = f"postgresql://{who}{host}{parts.path}" + ("" if schema == SCHEMA else f" (schema {schema})")
    return Address(url, shown, schema, _pooler(ours), _is_on(ours, "deep_sleep", True))


def check_schema(name: str) -> str:
    if not NAMES.fullmatch(name) or name.startswith("pg_"):
        raise BadInput(f"schema={name}: a schema is named by lower-case letters, digits and _")
    return name


def schema_of(store: object) -> str:
    """The schema of a store, or of the address of one; the usual one where it has none."""
    if isinstance(store, str) and store.startswith(("postgresql:", "postgres:")):
        return read(store).schema
    return str(getattr(getattr(store, "address", None), "schema", SCHEMA))


def _pooler(ours: Mapping[str, str]) -> bool | None:
    word = ours.get("pooler")
    if word is None:
        return None
    if word not in ("none", "session", "transaction"):
        advice = did_you_mean(word, ("transaction", "session", "none")) or "transaction, session or none"
        raise BadInput(f"pooler={word}: {advice}")
    return word == "transaction"


def _is_on(ours: Mapping[str, str], name: str, default: bool) -> bool:
    word = ours.get(name)
    if word is None:
        return default
    if word.lower() not in YES:
        raise BadInput(f"{name}={word}: true or false")
    return YES[word.lower()]
