"""FastAPI, with one event loop per process.

::

    uvicorn fastapi_app:app
    uvicorn --workers 2 fastapi_app:app
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypedDict

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from friends import Friend, friends_of

from api_client import AsyncCacheClient, CacheError
from api_client.http import cache_headers, is_not_modified


class State(TypedDict):
    """State with the lifetime of the application."""

    cache: AsyncCacheClient


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[State]:
    """Open one client for all requests; closing it publishes pending triggers."""
    async with AsyncCacheClient.from_env() as client:
        yield {"cache": client}


def the_cache(request: Request) -> AsyncCacheClient:
    """Return the client for a route."""
    client: AsyncCacheClient = request.state.cache
    return client


Cache = Annotated[AsyncCacheClient, Depends(the_cache)]
app = FastAPI(lifespan=lifespan)


@app.get("/people/{person_id}/friends", response_model=list[Friend])
async def friends(person_id: int, cache: Cache, request: Request, response: Response) -> Any:
    """Return the cached value, at once while there is one within its grace; 304 to a client that has it."""
    entry = await friends_of.on(cache).of(person_id=person_id).get_entry()
    headers = cache_headers(entry)
    if is_not_modified(entry, request.headers.get("If-None-Match")):
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return entry.value


@app.post("/people/{person_id}/friends/changed", status_code=204)
async def changed(person_id: int, cache: Cache) -> None:
    """Invalidate after a write to the graph: the value is stale from now on, and the next read refreshes it."""
    await friends_of.on(cache).of(person_id=person_id).invalidate()


@app.exception_handler(CacheError)
async def no_value(_: Request, error: Exception) -> JSONResponse:
    """Handle a missing value: the load failed, took too long, or the cache is down."""
    return JSONResponse({"error": "not available now"}, status_code=503)
