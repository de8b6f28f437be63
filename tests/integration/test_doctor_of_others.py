"""The checks of `doctor` that need no worker: readers, entries, settings, tags, budgets and Flower."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from api_client import CacheClient, ReaderEvents, ReaderSettings, WaitTimeout, __version__
from api_client.protocol import lease, tags
from api_client.protocol.budget import Budget, Share, Urgency
from api_client.protocol.entry import MAGIC
from api_client.protocol.keys import make_key, pending_tags_key
from api_client.transport.scripts import LeaseStore
from refresher import query
from refresher.embedded import RedisServer
from refresher.ops.doctor import budgets as doctor_budgets
from refresher.ops.doctor import keys as doctor_keys
from refresher.ops.doctor.findings import Level
from refresher.ops.doctor.registry import CHECKS
from refresher.ops.startup_checks import log_problems
from refresher.queries import Registry
from refresher.settings import WorkerSettings
from tests.support.any_reader import KINDS, AnyReader
from tests.support.doctor import run_check
from tests.support.http_requests import CannedHttpServer
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.usefixtures("patient_commands")
ROOT = Path(__file__).parents[2]
SECRET = "canary-41c9"
DROPPED = 'refresher_messages_dropped_total{reason="body"} 2.0\nrefresher_messages_dropped_total{reason="eta"} 0.0\n'
WORKERS_METRICS = '\nrefresher_ready{part="cache"} 1.0\n'


@pytest.fixture
def cache(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    monkeypatch.setattr(doctor_keys, "MIN_SILENCE_SECONDS", 3_600)  # a busy machine takes its time between two lines
    with redis.Redis.from_url(own_redis.url(0)) as client:
        yield client


def reader_settings(url: str) -> ReaderSettings:
    return ReaderSettings(redis_url=url, broker_url="redis://127.0.0.1:1/0", redis_timeout_seconds=MAX_WAIT_SECONDS)


def finds_nothing(reader: CacheClient | AnyReader) -> bool:
    """Read what is not there, as any reader that Redis serves."""
    with pytest.raises(WaitTimeout):
        reader.get("q", {}, timeout=0)
    return True


def said(url: str) -> str:
    found = run_check("readers", redis_url=url)
    assert (found.level is Level.OK) != bool(found.remedy)
    return found.message


def test_readers_are_counted_by_process_and_release_and_other_clients_are_not(
    own_redis: RedisServer, cache: redis.Redis
) -> None:
    assert said(own_redis.url(0)) == "none is connected to this cache"
    with CacheClient(reader_settings(own_redis.url(0))) as client, cache.client() as other:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: client.get("q", {"n": number}, default=None, timeout=0), range(20)))
        assert said(own_redis.url(0)) == f"processes connected: 1 of {__version__}"
        other.execute_command("CLIENT", "SETNAME", "reader/0.0.9/elsewhere:1")
        assert said(own_redis.url(0)) == f"processes connected: 1 of 0.0.9, 1 of {__version__}"
        other.execute_command("CLIENT", "SETNAME", f"refresher/{__version__}/elsewhere:1")
        assert said(own_redis.url(0)) == f"processes connected: 1 of {__version__}"
        other.execute_command("CLIENT", "SETNAME", "reader/of-something-else")
        assert said(own_redis.url(0)) == f"processes connected: 1 of {__version__}"


def test_equal_names_on_two_hosts_are_two_readers_and_a_long_silence_is_reported() -> None:
    """With a canned CLIENT LIST: a test can't wait for a long silence."""
    one = {"name": "reader/0.1.0/app:1", "addr": "10.0.0.1:4711", "idle": "75"}
    connections = [one, {**one, "addr": "10.0.0.2:4711"}, {**one, "addr": "10.0.0.2:4712", "idle": "12"}, {"name": ""}]
    cache = SimpleNamespace(client_list=lambda: connections)
    found = doctor_keys.readers(SimpleNamespace(cache=cache))  # type: ignore[arg-type]
    assert (found.level, found.message) == (
        Level.OK, "processes connected: 2 of 0.1.0; no request for 12.0 s",
    )  # fmt: skip


def test_a_missing_permission_to_list_connections_is_named(own_redis: RedisServer, cache: redis.Redis) -> None:
    cache.execute_command("ACL", "SETUSER", "weak", "on", f">{SECRET}", "~*", "&*", "+@all", "-client")
    url = f"redis://weak:{SECRET}@{own_redis.host}:{own_redis.port}/0"
    found = run_check("readers", redis_url=url)
    assert (found.level, found.remedy) == (Level.WARNING, "sign in as operator (docs/how-to/users-and-tls.md)")
    assert run_check("rights", redis_url=url).message.endswith("need: +client|list")


def test_without_the_client_command_readers_still_read_but_can_t_be_counted() -> None:
    with RedisServer.start(extra_config={"rename-command": "CLIENT NO-CLIENT"}) as server:
        found = run_check("readers", redis_url=server.url(0))
        with CacheClient(reader_settings(server.url(0))) as reader:
            assert finds_nothing(reader)
    assert (found.level, found.message.startswith("can't be counted: ")) == (Level.WARNING, True)


def test_a_reader_without_permission_to_set_its_name_still_reads(
    own_redis: RedisServer, cache: redis.Redis, kind: str
) -> None:
    cache.execute_command("ACL", "SETUSER", "weak", "on", f">{SECRET}", "~*", "&*", "+@all", "-client")
    url = f"redis://weak:{SECRET}@{own_redis.host}:{own_redis.port}/0"
    reader = KINDS[kind](reader_settings(url), ReaderEvents())
    try:
        assert finds_nothing(reader)
    finally:
        reader.close()


def test_a_client_name_in_the_url_is_used(own_redis: RedisServer, cache: redis.Redis, kind: str) -> None:
    reader = KINDS[kind](reader_settings(own_redis.url(0) + "?client_name=mine"), ReaderEvents())
    try:
        assert finds_nothing(reader)
        assert {one["name"] for one in cache.client_list()} == {"", "mine"}
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("written", "why", "remedy"),
    [
        (b"no entry", "1 garbage", "something else writes there"),
        (b"\x00" * 2_000, "1 garbage", "something else writes there"),
        (MAGIC + b"\x7f" + b"\x00" * 200, "1 version", "deploy the readers"),
    ],
    ids=["short", "long", "newer"],
)
def test_unreadable_entries_are_counted_with_their_cause(
    clean_redis: RedisServer, written: bytes, why: str, remedy: str
) -> None:
    with redis.Redis.from_url(clean_redis.url(0)) as client:
        none = run_check("entries", redis_url=clean_redis.url(0))
        assert (none.level, none.message) == (Level.OK, "0 sampled, all readable")
        client.set(make_key("cache", "q", {}, 1).entry, written)
        found = run_check("entries", redis_url=clean_redis.url(0))
    assert (found.level, found.message) == (
        Level.WARNING, f"of 1 sampled, 1 are unreadable and count as misses: {why}",
    )  # fmt: skip
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("metrics", "level", "words"),
    [
        (WORKERS_METRICS + DROPPED, Level.WARNING, "messages rejected since its start: 2 body"),
        (WORKERS_METRICS + DROPPED.replace("2.0", "0.0"), Level.OK, "served at CACHE_METRICS_PORT="),
        (DROPPED, Level.WARNING, "is not a worker"),
    ],
    ids=["dropped", "none dropped", "no worker"],
)
def test_rejected_messages_of_the_local_worker_are_reported(metrics: str, level: Level, words: str) -> None:
    with CannedHttpServer([metrics]) as server:
        found = run_check("metrics here", metrics_port=server.port)
    assert (found.level, words in found.message) == (level, True)


def test_a_misspelled_setting_is_named_with_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CACHE_REDIS_TIMEOUT", "CELERY_BROKER_URL", "CACHE_DIRECTORY", "NEO4J_PLUGINS"):
        monkeypatch.setenv(name, "1s")
    monkeypatch.setenv("CACHE_REDIS_TIMOUT", "1s")
    found = run_check("settings")
    assert "CACHE_REDIS_TIMOUT is not a setting, and has no effect: did you mean CACHE_REDIS_TIMEOUT?" in log_problems(
        WorkerSettings(redis_url="redis://127.0.0.1:1/0", neo4j_uri="bolt://127.0.0.1:1")
    )
    assert (found.level, found.message, found.remedy) == (
        Level.WARNING, "CACHE_REDIS_TIMOUT is not a setting, and has no effect", "did you mean CACHE_REDIS_TIMEOUT?",
    )  # fmt: skip


def test_each_check_has_a_row_in_the_documentation() -> None:
    page = (ROOT / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
    assert {check.name for check in CHECKS} == set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))


@pytest.mark.parametrize(
    ("policy", "pending", "members", "level", "words"),
    [
        ("volatile-lru", 0, 0, Level.OK, "none in use"),
        ("allkeys-lru", 0, 0, Level.OK, "none in use"),
        ("volatile-lru", 2e15, 3, Level.OK, "1 seen, the largest has 3 members; pending invalidations: 1"),
        ("allkeys-lru", 0, 3, Level.WARNING, "allkeys-lru may evict what is known of a tag"),
        ("volatile-lru", 1, 3, Level.WARNING, "invalidations of tags that are pending for long: 1"),
        ("volatile-lru", 0, 5, Level.WARNING, "the largest has 5 members: an invalidation takes Redis about"),
    ],
)
def test_tags_that_may_be_evicted_are_long_pending_or_too_large_are_a_warning(
    own_redis: RedisServer, cache: redis.Redis, monkeypatch: pytest.MonkeyPatch,
    policy: str, pending: float, members: int, level: Level, words: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(doctor_keys, "LARGE_TAG", 4)
    cache.config_set("maxmemory", "100mb")
    cache.config_set("maxmemory-policy", policy)
    store = LeaseStore(cache)
    for number in range(members):
        store.run(tags.register(make_key("cache", "q", {"n": number}, 1), "people", lives_seconds=60))
    if pending:
        cache.zadd(pending_tags_key("cache"), {"{}": pending})
    found = run_check("tags", redis_url=own_redis.url(0))
    assert (found.level, bool(found.remedy)) == (level, level is not Level.OK)
    assert words in found.message


def test_tags_that_this_user_may_not_see_are_a_warning(own_redis: RedisServer, cache: redis.Redis) -> None:
    cache.execute_command("ACL", "SETUSER", "some", "reset", "on", ">x", "%RW~cache:e1:*", "&*", "+@all")
    found = run_check("tags", redis_url=f"redis://some:x@{own_redis.host}:{own_redis.port}/0")
    assert (found.level, found.message) == (
        Level.WARNING, "skipped: this user of CACHE_REDIS_URL may not see them",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("of_query", "of_all", "keys", "hours", "loads", "level", "words"),
    [
        ({}, {}, 20, 1, 0, Level.OK, "none is set"),
        ({"rate": 1.0}, {}, 20, -1, 1, Level.OK, "q: 1/s, 1 in progress"),
        ({"rate": 1.0}, {}, 5, 1, 0, Level.OK, "q: 1/s, 0 in progress"),  # they wait for workers
        ({"rate": 1.0}, {}, 20, 1, 0, Level.WARNING, "its keys need up to 2 loads a second, and 1 are allowed"),
        ({"rate": 1.0, "negative_ttl": 5}, {}, 8, 1, 0, Level.WARNING, "its keys need up to 1.6 loads a second"),
        ({"rate": 1.0, "batch": 10}, {}, 20, 1, 0, Level.OK, "q: 1/s, 0 in progress"),
        ({}, {"refresh_rate": 1.5}, 20, 1, 0, Level.WARNING, "all queries: 1 queued, the oldest for 60 min"),
        ({"concurrency": 2}, {}, 1, 1, 1, Level.OK, "q: 2 at once, 1 in progress"),
        ({"concurrency": 2}, {}, 1, 1, 2, Level.WARNING, "all of 2 loads at once are in progress"),
    ],
)
@pytest.mark.usefixtures("no_share_ends")
def test_a_budget_that_delays_refreshes_is_a_warning(
    own_redis: RedisServer, cache: redis.Redis, monkeypatch: pytest.MonkeyPatch,
    of_query: dict[str, Any], of_all: dict[str, float], keys: int, hours: int, loads: int, level: Level, words: str,
) -> None:  # fmt: skip
    own, store = Registry(), LeaseStore(cache)
    query("q", ttl=10, grace=0, into=own, **of_query)(load_all if "batch" in of_query else load_one)
    monkeypatch.setattr(doctor_budgets, "registry", own)
    for number in range(keys):
        cache.set(make_key("cache", "q", {"n": number}, 1).entry, b"")
    waiting = make_key("cache", "q", {"n": 0}, 1)
    long = MAX_WAIT_SECONDS
    store.run(lease.claim(waiting, claim_id="x", seen_token=0, queue_ttl_seconds=long, retention_seconds=long))
    cache.hincrby(waiting.record, "claimed_at", -hours * 3_600_000_000)  # or in an hour: it does not wait yet
    for number in range(loads):
        store.run(Share("cache", "q", f"share-{number}", Budget(), Budget(concurrency=10)).take(Urgency.STALE))
    found = run_check("budgets", redis_url=own_redis.url(0), **of_all)
    assert (found.level, bool(found.remedy)) == (level, level is Level.WARNING)
    assert words in found.message


def load_one(tx: object, n: int) -> int:
    """Return the param."""
    return n


def load_all(tx: object, calls: list[dict[str, int]]) -> list[int]:
    """Return the params."""
    return [call["n"] for call in calls]
