"""Tests of the application: no worker, no broker, no graph."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from app import app

from refresher import TransientFailure
from refresher.testing import InlineCache


@pytest.fixture
def cache() -> Iterator[InlineCache]:
    """Answer every query with two names."""
    with InlineCache() as cache:
        cache.answer("suggestions_for", ["Alan", "Barbara"], ttl="5s", grace="1h")
        yield cache


def get(path: str) -> httpx.Response:
    """Send a request to the application, without a server."""

    async def request() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
            return await client.get(path)

    return asyncio.run(request())


def names() -> list[str]:
    return get("/people/42/suggestions").json()["names"]


def test_a_stale_value_is_served_while_it_is_reloaded(cache: InlineCache) -> None:
    assert names() == ["Alan", "Barbara"]
    cache.answer("suggestions_for", ["Alan"], ttl="5s", grace="1h")
    cache.advance("6s")
    assert names() == ["Alan", "Barbara"]
    assert names() == ["Alan"]


def test_a_load_that_fails_is_503_where_there_is_no_value(cache: InlineCache) -> None:
    def down(person_id: int) -> None:
        raise TransientFailure("no leader")

    cache.answer("suggestions_for", down)
    assert get("/people/42/suggestions").status_code == 503
