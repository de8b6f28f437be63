"""FastAPI, on one event loop a process.

::

    uvicorn fastapi_app:app
    uvicorn --workers 2 fastapi_app:app
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from friends import Friend, friends_of

from api_client import AsyncCacheClient, CacheError


class State(TypedDict):
    """What lives as long as the application."""

    cache: AsyncCacheClient


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[State]:
    """Open one client for all requests; at the end it publishes what is left, and closes."""
    async with AsyncCacheClient.from_env() as client:
        yield {"cache": client}


def the_cache(request: Request) -> AsyncCacheClient:
    """Give a route the client."""
    client: AsyncCacheClient = request.state.cache
    return client


Cache = Annotated[AsyncCacheClient, Depends(the_cache)]
app = FastAPI(lifespan=lifespan)


@app.get("/people/{person_id}/friends")
async def friends(person_id: int, cache: Cache) -> list[Friend]:
    """Answer from the cache, at once while there is a value within its grace."""
    return await friends_of.on(cache)(person_id=person_id)


@app.post("/people/{person_id}/friends/changed", status_code=204)
async def changed(person_id: int, cache: Cache) -> None:
    """Whoever has written to the graph says so here: from now on the value is stale, and the next read refreshes it."""
    await friends_of.on(cache).invalidate({"person_id": person_id})


@app.exception_handler(CacheError)
async def no_value(_: Request, error: Exception) -> JSONResponse:
    """Nothing to answer with: the load failed, took too long, or the cache is down."""
    return JSONResponse({"error": "not available now"}, status_code=503)
