"""Refreshes that may find the value unchanged: the inputs of the load, and what is committed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from api_client.errors import CacheUnavailable
from api_client.protocol.entry import (
    Flag,
    Header,
    Revalidation,
    Smoothed,
    decode_header,
    encode,
    encode_revalidation,
    encode_tags,
)
from api_client.protocol.lease import AcquireReply, CommitStatus
from api_client.protocol.messages import RefreshReason
from refresher import UNCHANGED, Previous, Result
from refresher.flow.outcome import OutcomeKind
from refresher.queries import Loaded
from tests.support.fake_refresher import ACQUIRED, ITEM, KEY, NOW_US, TOKEN, Worker
from tests.support.lease_world import a_header
from tests.unit.refresher.flow.test_tags import reply, tag_query

OLD = b"nonce--0"
LOADED_AT_US = NOW_US - 60_000_000
BEFORE: dict[str, Any] = {
    "token": 900, "nonce": OLD, "read_started_us": LOADED_AT_US - 500_000, "fetched_at_us": LOADED_AT_US,
    "delta": Smoothed(8.0, 1.0), "run": Smoothed(4.0, 0.5), "degree": 77, "is_compressed": True,
    "encoded_revalidation": encode_revalidation(Revalidation(7)), "encoded_tags": encode_tags(("n:1",)),
}  # fmt: skip


class RevalidatingWorker(Worker):
    """A refresher of a conditional query with an existing entry; records what its loads are given."""

    def __init__(self, header: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__()
        tag_query(self.registry, "q", **({"ttl": 300, "grace": 60, "conditional": True} | options))
        self.before = a_header(**(BEFORE | (header or {})))
        self.replies |= {
            "acquire": self.acquired_entry(),
            "read_payload": b"\xa3old",
            "tag_clock": 1,
            "tag_register": reply(),
        }
        self.given: list[Previous | None] = []
        self.version: Any = None
        self.unchanged = 0

    def acquired_entry(self) -> AcquireReply:
        return replace(ACQUIRED, entry_header=encode(self.before, KEY.digest, b""))

    def load(self, _query: Any, calls: Any, previous: Any, bookmarks: Any, timeout_seconds: float) -> list[Loaded]:
        self.given += previous
        (loaded,) = super().load(_query, calls, previous, bookmarks, timeout_seconds)
        return [replace(loaded, version=self.version, degree=0)]

    def found_unchanged(self, query: str) -> None:
        self.unchanged += 1

    def committed_header(self) -> tuple[Header, bytes, bytes]:
        """Return the committed header, the payload after it, and the nonce of the entry whose payload stays."""
        call = self.calls["commit"]
        content, prolongs = call.args[2], call.args[6]
        header = decode_header(content, KEY.digest)
        return header, content[header.length :], prolongs


def refreshed(worker: RevalidatingWorker, returned: Any = UNCHANGED) -> tuple[Header, bytes, bytes]:
    """Refresh once, and return what was committed."""
    worker.loads.append(returned)
    worker.refresher.refresh(ITEM)
    return worker.committed_header()


@pytest.fixture
def worker() -> RevalidatingWorker:
    return RevalidatingWorker({"is_compressed": False})


def test_an_entry_from_before_the_query_had_tags_by_its_plans_is_loaded_in_full_once() -> None:
    worker = RevalidatingWorker({"is_compressed": False, "encoded_tags": b""}, tags="auto")
    refreshed(worker, "new")
    refreshed(worker)  # nothing that it reads has a tag
    assert [bool(previous) for previous in worker.given] == [False, True]
    assert worker.unchanged == 1


def test_an_entry_that_has_tags_by_plans_keeps_them() -> None:
    assert refreshed(RevalidatingWorker({"is_compressed": False}, tags="auto"))[0].tags == ("n:1",)


def test_a_conditional_load_gets_the_previous_value_with_its_time_and_version(worker: RevalidatingWorker) -> None:
    refreshed(worker, "new")
    assert worker.given == [Previous("old", datetime.fromtimestamp(LOADED_AT_US / 1e6, UTC), 7)]
    assert worker.calls["read_payload"].args == (OLD,)


def test_an_unchanged_value_commits_only_a_header_that_keeps_what_only_a_load_measures(
    worker: RevalidatingWorker,
) -> None:
    header, payload, prolongs = refreshed(worker)
    assert (payload, prolongs) == (b"", OLD)
    assert (header.token, header.read_started_us, header.fetched_at_us) == (TOKEN, NOW_US, NOW_US + 250_000)
    assert (header.run, header.degree, header.tags) == (Smoothed(4.0, 0.5), 77, ())
    assert header.revalidation == Revalidation(7)
    assert header.soft_expiry_us == header.fetched_at_us + 300_000_000
    assert worker.unchanged == 1


@pytest.mark.parametrize(
    ("reason", "wait_seconds"), [(RefreshReason.STALE, 2.0), (RefreshReason.MISS, 0.0)], ids=["stale", "a miss"]
)
def test_delta_of_an_unchanged_value_is_that_of_a_full_load(
    worker: RevalidatingWorker, reason: RefreshReason, wait_seconds: float
) -> None:
    worker.loads.append(UNCHANGED)
    worker.refresher.refresh(type(ITEM)(query="q", params=ITEM.params, claim_number=7, reason=reason))
    sample = wait_seconds + 4.0
    assert worker.committed_header()[0].delta.mean == pytest.approx(8.0 + (sample - 8.0) / 8)


def test_a_new_value_of_a_conditional_load_is_committed_like_any_other(worker: RevalidatingWorker) -> None:
    worker.load_seconds = 12.0
    header, payload, prolongs = refreshed(worker, Result("new", version=8))
    assert (payload, prolongs) == (b"\xa3new", b"")
    assert header.run.mean == pytest.approx(5.0)
    assert (header.revalidation, worker.unchanged) == (Revalidation(8), 0)


def test_an_unchanged_compressed_entry_stays_compressed() -> None:
    worker = RevalidatingWorker(version_cypher="RETURN 1", conditional=False)
    assert refreshed(worker)[0].is_compressed


def test_without_conditional_no_payload_is_read_and_the_load_gets_the_previous_version() -> None:
    worker = RevalidatingWorker(version_cypher="RETURN 1", conditional=False)
    worker.version = 7
    header, _, prolongs = refreshed(worker)
    assert "read_payload" not in worker.calls
    assert [one and one.version for one in worker.given] == [7]
    assert (header.revalidation, prolongs) == (Revalidation(7), OLD)


@pytest.mark.parametrize(
    ("header", "content"),
    [
        ({"flags": Flag.HANDOFF}, b"\xa3old"),
        ({"encoded_revalidation": b"\xc1"}, b"\xa3old"),
        ({"encoded_tags": b"\xc1"}, b"\xa3old"),
        ({"read_started_us": 2**62, "fetched_at_us": 2**62}, b"\xa3old"),
        ({}, b""),
        ({}, b"\xc1"),
        ({"is_compressed": True}, b"no frame"),
        ({}, CacheUnavailable("down")),
    ],
    ids=["handoff", "no version", "no tags", "no time", "gone", "no payload", "no frame", "no redis"],
)
def test_an_entry_that_can_t_be_used_gives_no_previous_value(header: dict[str, Any], content: Any) -> None:
    worker = RevalidatingWorker({"is_compressed": False} | header)
    worker.replies["read_payload"] = content
    assert refreshed(worker, "new")[2] == b""
    assert worker.given == [None]


@pytest.mark.parametrize(
    ("options", "entry"),
    [({}, True), ({"conditional": False}, True), ({}, False)],
    ids=["allowed", "not conditional", "no entry"],
)
def test_returning_unchanged_without_a_previous_value_is_an_error(options: dict[str, Any], entry: bool) -> None:
    worker = RevalidatingWorker({"is_compressed": False}, **options)
    worker.replies["acquire"] = worker.acquired_entry() if entry else ACQUIRED
    worker.loads.append(UNCHANGED)
    outcome = worker.refresher.refresh(ITEM)
    if entry and not options:
        assert outcome.kind is OutcomeKind.UNCHANGED
    else:
        assert (outcome.kind, outcome.why) == (OutcomeKind.FAILED, "result")
        assert "UNCHANGED: allowed where" in (worker.letters[0].message or "")


OWN = {"is_compressed": False, "encoded_revalidation": encode_revalidation(Revalidation(7, 30.0, 15.0))}


@pytest.mark.parametrize(
    ("returned", "lives", "kept"),
    [
        (UNCHANGED, (30, 45), Revalidation(7, 30.0, 15.0)),
        (Result(UNCHANGED, ttl=20), (20, 35), Revalidation(7, 20.0, 15.0)),
        (Result(UNCHANGED, grace=0), (30, 30), Revalidation(7, 30.0, 0.0)),
        (Result(UNCHANGED, version="v8"), (30, 45), Revalidation("v8", 30.0, 15.0)),
        (Result(UNCHANGED, negative=True), (10, 25), Revalidation(7, 10.0, 15.0)),
        (Result("new"), (300, 360), Revalidation()),
        (Result("", version=8, grace=1), (10, 11), Revalidation(8, 10.0, 1.0)),
    ],
)
def test_an_unchanged_value_keeps_the_terms_that_it_had_set(
    returned: Any, lives: tuple[float, float], kept: Revalidation
) -> None:
    worker = RevalidatingWorker(OWN, negative_ttl=10)
    header, _, _ = refreshed(worker, returned)
    assert (header.ttl_seconds, worker.calls["commit"].args[3] / 1_000) == lives  # type: ignore[operator]
    assert header.revalidation == kept


@pytest.mark.parametrize(
    ("tags", "returned", "expected"),
    [
        (lambda value, n: [f"value:{value}"], UNCHANGED, ("n:1",)),
        (["static"], UNCHANGED, ("n:1", "static")),
        ([], Result(UNCHANGED, tags=["more", "n:1"]), ("n:1", "more")),
        (lambda value, n: [f"value:{value}"], "new", ("value:new",)),
        (None, UNCHANGED, ()),
    ],
    ids=["a function", "for all", "its result's", "new", "no more"],
)
def test_an_unchanged_value_keeps_its_tags_and_registers_them_again(
    tags: Any, returned: Any, expected: tuple[str, ...]
) -> None:
    worker = RevalidatingWorker({"is_compressed": False}, tags=tags)
    assert refreshed(worker, returned)[0].tags == expected
    assert worker.diary.count(("tag_register",)) == len(expected)


@pytest.mark.parametrize(
    ("version", "options"),
    [(1.5, {}), (True, {}), ("v" * 201, {}), (2**63, {}), ([1], {}), (1, {"version_cypher": "RETURN 1"}),
     (1, {"conditional": False})],
)  # fmt: skip
def test_a_wrong_version_of_a_result_is_a_permanent_error(version: Any, options: dict[str, Any]) -> None:
    worker = RevalidatingWorker({"is_compressed": False}, **options)
    worker.loads.append(Result("new", version=version))
    outcome = worker.refresher.refresh(ITEM)
    assert (outcome.kind, outcome.why) == (OutcomeKind.FAILED, "result")
    assert "version=" in (worker.letters[0].message or "")


def test_an_unchanged_value_whose_entry_is_gone_is_retried_without_counting_an_attempt(
    worker: RevalidatingWorker,
) -> None:
    worker.replies["commit"] = CommitStatus.PREVIOUS_GONE
    worker.loads.append(UNCHANGED)
    outcome = worker.refresher.refresh(ITEM)
    assert (outcome.kind, outcome.why, outcome.pause_seconds) == (OutcomeKind.RETRY, "previous_gone", 1)
    assert outcome.again.attempt == 1
    assert worker.calls["retry"].args[5] == 0
    assert worker.unchanged == 0


def test_an_unchanged_value_stored_as_stale_counts_as_unchanged_and_is_claimed_again(
    worker: RevalidatingWorker,
) -> None:
    worker.replies["commit"] = CommitStatus.ACCEPTED_AS_STALE
    worker.loads.append(UNCHANGED)
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED_AS_STALE
    assert (worker.unchanged, "claim" in worker.calls) == (1, True)
