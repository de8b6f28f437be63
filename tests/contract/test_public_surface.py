"""The public API of the two packages, and the low cost of importing the reader."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from types import ModuleType
from typing import get_overloads

import pytest

import api_client
import refresher
from api_client import AsyncCacheClient, CacheClient, CacheError

API_CLIENT = [
    "AsyncCacheClient", "AsyncCachedCall", "AsyncCachedQuery", "CacheClient", "CacheError", "CacheUnavailable",
    "CachedCall", "CachedQuery", "ConfigurationError", "DecodeError", "Entry", "EntryState", "Explanation",
    "InvalidQuery", "Invalidation", "QueryCall", "ReadFailure", "ReaderEvents", "ReaderSettings", "RefreshFailed",
    "RefreshReason", "RefreshState", "TagInvalidation", "TriggerFailed", "UnknownQuery", "WaitTimeout", "__version__",
    "aget_cached", "ainvalidate_tags", "cached_query", "configure", "default_async_client", "default_client",
    "get_cached", "invalidate_tags",
]  # fmt: skip
REFRESHER = [
    "Previous", "RefreshMode", "RefresherError", "Result", "TransientFailure", "UNCHANGED", "WorkerEvents",
    "WorkerSettings", "__version__", "install", "make_app", "query",
]  # fmt: skip
SEEN_BY_A_FRESH_PROCESS = """
import json, os, sys
before = dict(os.environ)
import api_client
print(json.dumps({"modules": sorted(sys.modules), "environ_kept": before == dict(os.environ)}))
"""
TOO_HEAVY = {"neo4j", "flower", "refresher", "celery", "kombu", "numpy", "rich", "typer", "zstandard"}


@pytest.mark.promise("Contract and operation", "Public names and signatures are those recorded")
@pytest.mark.parametrize(("package", "names"), [(api_client, API_CLIENT), (refresher, REFRESHER)])
def test_the_public_surface_is_exact(package: ModuleType, names: list[str]) -> None:
    listed = package.__all__
    assert set(listed) == set(names), "a name that comes or goes is a change of the public contract: change it here too"
    assert [name for name in listed if not hasattr(package, name)] == []


def test_every_error_of_the_reader_has_one_base() -> None:
    errors = [getattr(api_client, name) for name in api_client.__all__ if isinstance(getattr(api_client, name), type)]
    assert [
        error.__name__ for error in errors if issubclass(error, Exception) and not issubclass(error, CacheError)
    ] == []


@pytest.mark.parametrize("client", [CacheClient, AsyncCacheClient])
@pytest.mark.parametrize(
    "name", ["get", "get_entry", "get_many", "explain", "invalidate", "refresh", "close", "from_env", "flush", "key"]
)
def test_a_client_has_the_methods_of_the_public_contract(client: type, name: str) -> None:
    method = getattr(client, name)
    assert callable(method)
    assert method.__doc__


OF_CLIENTS = ["get", "get_entry", "get_many", "explain", "invalidate", "refresh", "flush"]
OF_CALLS = ["get", "get_entry", "explain", "invalidate", "refresh"]
TWINS = [
    *((CacheClient, AsyncCacheClient, name, name) for name in OF_CLIENTS),
    (api_client.CachedQuery, api_client.AsyncCachedQuery, "__call__", "__call__"),
    *((api_client.CachedCall, api_client.AsyncCachedCall, name, name) for name in OF_CALLS),
    (api_client, api_client, "get_cached", "aget_cached"),
]


@pytest.mark.parametrize(
    ("sync_owner", "async_owner", "sync_name", "async_name"), TWINS, ids=lambda one: str(one)[-40:]
)
def test_sync_and_async_methods_take_the_same_arguments(
    sync_owner: object, async_owner: object, sync_name: str, async_name: str
) -> None:
    sync, awaited = getattr(sync_owner, sync_name), getattr(async_owner, async_name)
    assert inspect.signature(awaited) == inspect.signature(sync)
    assert [inspect.signature(one) for one in get_overloads(awaited)] == [
        inspect.signature(one) for one in get_overloads(sync)
    ]
    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(sync)
    assert sync.__doc__
    assert awaited.__doc__


def test_importing_the_reader_loads_nothing_of_the_worker() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", SEEN_BY_A_FRESH_PROCESS], capture_output=True, text=True, check=True
    )
    seen = json.loads(result.stdout)
    assert {name.partition(".")[0] for name in seen["modules"]} & TOO_HEAVY == set()
    assert seen["environ_kept"]
