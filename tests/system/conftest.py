"""Fixtures that several files take."""

from __future__ import annotations

from tests.postgres import own_server, pg_address, pg_stores, pooler, server_url

__all__ = ["own_server", "pg_address", "pg_stores", "pooler", "server_url"]
