"""Formats of all releases: this release reads those of every release, and writes exactly those of its golden files.

Readers and workers of two releases run at once, and entries outlive them both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from kombu.utils.json import loads

import api_client
from api_client.protocol import messages
from api_client.protocol.entry import decode_header
from api_client.protocol.keys import dead_letters_key
from api_client.protocol.lease import AcquireStatus, ClaimStatus, CommitStatus, RecordState
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from refresher.flow.dead_letters import DeadLetters
from refresher.worker.celery_fixes.message_guard import validate_message
from tests.support.lease_world import ClockedWorld
from tests.support.movable_clock import ClockedRedis
from tests.support.payloads import read_payload
from tests.support.wire_formats import FORMATS, WRITTEN, as_text, key_of, meaning, metrics
from tests.support.wire_records import NONCE, carried, records

RELEASES = sorted(
    (path.name for path in FORMATS.iterdir() if path.is_dir()), key=lambda name: [*map(int, name.split("."))]
)
NEWEST = RELEASES[-1]
# Celery determines the headers; only these are ours.
OURS = ("task", "argsrepr", "shadow", "ignore_result")


@cache
def golden(release: str, name: str) -> Any:
    return json.loads((FORMATS / release / f"{name}.json").read_text(encoding="utf-8"))


def of_all_releases(name: str, part: str | None = None) -> list[Any]:
    """Return one parameter for each item that each release has written."""
    contents = {release: golden(release, name) for release in RELEASES}
    return [
        pytest.param(release, each, id=f"{release}: {each}")
        for release, content in contents.items()
        for each in (content[part] if part else content)
    ]


def without_frames(content: Any) -> Any:
    """Leave the compressed bytes out: they may differ between versions of the compressor."""
    made = {
        name: one if not one["header"]["is_compressed"] else {**one, "bytes": None}
        for name, one in content["made"].items()
    }
    return {**content, "made": made}


def test_this_version_has_its_folder() -> None:
    assert api_client.__version__.rpartition(".")[0] == NEWEST, "CONTRIBUTING.md says how to add one"


@pytest.mark.parametrize("name", WRITTEN)
def test_the_current_formats_are_those_of_the_golden_files(name: str) -> None:
    written, kept = json.loads(as_text(WRITTEN[name]())), golden(NEWEST, name)
    if name == "entries":
        written, kept = without_frames(written), without_frames(kept)
    assert written == kept


def test_records_and_notifications_are_those_of_the_golden_file(clocked_redis: ClockedRedis) -> None:
    assert json.loads(as_text(records(clocked_redis))) == golden(NEWEST, "records")


def test_a_published_message_matches_the_golden_envelope(redis_server: RedisServer) -> None:
    written, kept = carried(redis_server), golden(NEWEST, "envelope")
    for name in ("body", "content-type", "content-encoding"):
        assert written[name] == kept[name]
    assert {name: written["headers"].get(name) for name in OURS} == {name: kept["headers"].get(name) for name in OURS}


@pytest.mark.promise(
    "Contract and operation", "Entries, records, messages and metrics of earlier releases are understood"
)
@pytest.mark.parametrize(("release", "name"), of_all_releases("entries", "made"))
def test_an_entry_of_any_release_is_read(release: str, name: str) -> None:
    content = golden(release, "entries")
    kept, raw = content["made"][name], bytes.fromhex(content["made"][name]["bytes"])
    header = decode_header(raw, bytes.fromhex(content["digest"]))
    read = json.loads(as_text(meaning(header)))
    assert {field: read[field] for field in kept["header"]} == kept["header"]
    assert (header.is_stale(content["now_us"]), header.is_handoff) == (kept["is_stale"], kept["is_handoff"])
    value = read_payload(raw, offset=header.length, is_compressed=header.is_compressed, query="q", max_bytes=10_000)
    assert value == content["value"]


@pytest.mark.parametrize(("release", "name"), of_all_releases("messages"))
def test_a_message_of_any_release_is_read(release: str, name: str) -> None:
    kept = golden(release, "messages")[name]
    items = messages.decode(loads(kept["text"]))
    assert len(items) == len(kept["items"])
    for item, wanted in zip(items, kept["items"], strict=True):
        assert {field: getattr(item, field) for field in wanted} == wanted
    assert items[0].key("golden").query == items[0].query


@pytest.mark.parametrize("release", RELEASES)
def test_a_message_of_any_release_passes_the_guard(release: str) -> None:
    kept = golden(release, "envelope")
    message = SimpleNamespace(
        headers=kept["headers"], content_type=kept["content-type"], content_encoding=kept["content-encoding"],
        body=kept["body"], payload=loads(kept["body"]),
    )  # fmt: skip
    assert validate_message(message, refreshes_only=True) is None
    ((argument,), _, _) = message.payload
    assert len(messages.decode(argument)) == 1


@pytest.mark.parametrize(("release", "name"), of_all_releases("dead-letters"))
def test_a_dead_letter_of_any_release_is_listed_and_can_be_dropped(
    clean_redis: RedisServer, release: str, name: str
) -> None:
    kept = golden(release, "dead-letters")[name]
    with redis.Redis.from_url(clean_redis.url()) as client:
        client.zadd(dead_letters_key("golden"), {kept["member"]: kept["letter"]["token"]})
        letters = DeadLetters(client, "golden")
        (letter,) = letters.newest()
        assert {field: getattr(letter, field) for field in kept["letter"]} == kept["letter"]
        assert letter.id == kept["id"]
        assert letters.drop(letter)
        assert client.zcard(dead_letters_key("golden")) == 0


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("who", ["reader", "worker"])
def test_no_metric_of_any_release_has_gone_or_changed(release: str, who: str) -> None:
    today, kept = metrics()[who], golden(release, "metrics")[who]
    assert {name: today.get(name) for name in kept} == kept


@contextmanager
def found(clocked: ClockedRedis, release: str, name: str) -> Iterator[ClockedWorld]:
    """The world as a release has left it."""
    kept, key = golden(release, "records")[name], key_of(golden(release, "names"))
    with redis.Redis.from_url(clocked.server.url()) as client:
        world = ClockedWorld(client, LeaseStore(client), key, clock=clocked.clock)
        world.at(kept["now_us"])
        client.delete(key.entry, key.record)
        if kept["fields"]:
            client.hset(key.record, mapping=kept["fields"])
            client.pexpire(key.record, kept["record_ms"])
        if kept["entry"]:
            client.set(key.entry, bytes.fromhex(kept["entry"]))
        yield world
        client.delete(key.entry, key.record)


def acquires(world: ClockedWorld, ticket: str = "") -> Any:
    number = int(world.record().get("claim_number", 0))
    reply = world.acquire(b"nonce--2", number=number, ticket=ticket)
    return reply.status, reply.bookmarks


def acquires_after_an_invalidation(world: ClockedWorld) -> Any:
    generation = int(world.record()["generation"])
    reply = world.acquire(b"nonce--2")
    return reply.status, reply.bookmarks, reply.generation == generation > 0


def commits(world: ClockedWorld) -> Any:
    return world.commit(int(world.record()["token"]), NONCE)


def claims(world: ClockedWorld) -> Any:
    reply = world.claim("claim-2", seen=1)
    return reply.status, reply.state, reply.left_seconds, reply.kind, reply.attempts


def claims_what_was_seen(world: ClockedWorld) -> Any:
    entry = world.entry()
    return world.claim("claim-2", seen=entry.token if entry else 0).status


READ: list[tuple[str, Callable[[ClockedWorld], Any], Any]] = [
    ("queued", acquires, (AcquireStatus.ACQUIRED, ("FB:1",))),
    ("queued", claims_what_was_seen, ClaimStatus.REFUSED),
    ("running", commits, CommitStatus.ACCEPTED),
    ("running", acquires, (AcquireStatus.HELD, ())),
    ("running, invalidated", commits, CommitStatus.ACCEPTED_AS_STALE),
    ("retrying", acquires, (AcquireStatus.HELD, ())),
    ("retrying", lambda world: acquires(world, "ticket-1"), (AcquireStatus.ACQUIRED, ("FB:1",))),
    ("cooling", lambda world: (world.record()["kind"], claims_what_was_seen(world)), (b"syntax", ClaimStatus.REFUSED)),
    ("handed back", acquires, (AcquireStatus.ACQUIRED, ("FB:1",))),
    ("invalidated", claims_what_was_seen, ClaimStatus.CLAIMED),
    ("invalidated", acquires_after_an_invalidation, (AcquireStatus.ACQUIRED, ("FB:2",), True)),
    ("invalidated hard", acquires_after_an_invalidation, (AcquireStatus.ACQUIRED, ("FB:2",), True)),
    ("committed", claims, (ClaimStatus.ALREADY_REFRESHED, RecordState.IDLE, 0.0, "", 0)),
    ("committed", claims_what_was_seen, ClaimStatus.CLAIMED),
]  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("name", "step", "expected"), READ, ids=[f"{at}-{row[0]}" for at, row in enumerate(READ)])
def test_the_next_step_goes_on_from_a_record_of_any_release(
    clocked_redis: ClockedRedis, release: str, name: str, step: Callable[[ClockedWorld], Any], expected: Any
) -> None:
    with found(clocked_redis, release, name) as world:
        assert step(world) == expected


@pytest.mark.parametrize("release", RELEASES)
def test_every_record_state_of_any_release_is_tested(release: str) -> None:
    assert {name for name, *_ in READ} >= set(golden(release, "records"))
