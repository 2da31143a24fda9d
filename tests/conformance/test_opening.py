"""Stores are opened by their address."""

from pathlib import Path

import pytest

from raptor.errors import BadInput
from raptor.state.base import Query
from raptor.state.opening import open_store
from raptor.task import Task


@pytest.mark.asyncio
@pytest.mark.spec("003-23", "003-24")
async def test_a_store_of_files_keeps_what_a_store_in_memory_forgets(tmp_path: Path) -> None:
    kept: dict[str, int] = {}
    for address in ("memory:", f"sqlite://{tmp_path}/state"):
        async with open_store(address) as store:
            await store.put([Task(service="mail", due=1.0)], now=0.0)
        async with open_store(address) as store:
            kept[address.partition(":")[0]] = len(await store.find(Query()))
    assert kept == {"memory": 0, "sqlite": 1}


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("sqlit:///srv", "did you mean 'sqlite'"),
        ("/srv/app", "begins with memory:, sqlite:"),
        ("memory:x", "without a path"),
        ("sqlite:srv", "sqlite:/// and the path"),
    ],
)
@pytest.mark.asyncio
async def test_an_address_that_is_none_is_refused_with_advice(address: str, advice: str) -> None:
    with pytest.raises(BadInput, match=advice):
        async with open_store(address):
            pass
