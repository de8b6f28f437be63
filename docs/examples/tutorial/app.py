"""Whom a person may want to meet: from the cache, however long the graph takes."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from neo4j import AsyncGraphDatabase

from api_client import CachedQuery, CacheError
from api_client.http import cache_headers

suggestions_for = CachedQuery("suggestions_for", returns=list[str])

KNOW = "MATCH (a:Person {id: $one}), (b:Person {id: $other}) MERGE (a)-[:KNOWS]->(b)"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Open the graph, for writes; reads need the cache alone."""
    auth = (os.environ["NEO4J_USER"], os.environ["NEO4J_PASSWORD"])
    async with AsyncGraphDatabase.driver(os.environ["NEO4J_URI"], auth=auth) as driver:
        yield {"driver": driver}


app = FastAPI(lifespan=lifespan)


@app.get("/people/{person_id}/suggestions")
async def suggestions(person_id: int, response: Response) -> dict[str, Any]:
    """Return the cached names, and what the cache knows of them."""
    entry = await suggestions_for.aio.of(person_id=person_id).get_entry()
    response.headers.update(cache_headers(entry))
    return {"names": entry.value, "state": entry.state, "age_seconds": round(entry.age, 1)}


@app.put("/people/{person_id}/friends/{friend_id}", status_code=204)
async def befriend(person_id: int, friend_id: int, request: Request) -> None:
    """Write to the graph, then invalidate what the write has changed."""
    database = os.environ.get("NEO4J_DATABASE")
    await request.state.driver.execute_query(KNOW, one=person_id, other=friend_id, database_=database)
    for changed in (person_id, friend_id):
        await suggestions_for.aio.of(person_id=changed).invalidate()


@app.exception_handler(CacheError)
async def no_value(_: Request, error: Exception) -> JSONResponse:
    """Answer where there is no value: its load failed or took too long, or the cache is down."""
    return JSONResponse({"error": str(error)}, status_code=503)
