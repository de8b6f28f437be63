"""Explanations of a key, from Redis' replies. Durations in seconds."""

from __future__ import annotations

from typing import Any

import pytest

from api_client.explain import Explanation, details_of, duration, explain_reads, explanation, percent, reason_of
from api_client.protocol.entry import Flag, Smoothed, encode
from api_client.protocol.keys import make_key
from api_client.protocol.model import EntryState
from api_client.protocol.xfetch import refresh_probability
from tests.support.lease_world import a_header

SECRET = "canary-41f0"
KEY = make_key("cache", "friends_of", {"person": SECRET}, 2)
NOW_US = 1_800_000_000_000_000
GONE, NEVER = -2, -1


def entry(left_seconds: float, **changes: Any) -> bytes:
    """Return an entry that was loaded 10 s ago, with a TTL of 60 s, δ 2 s and β 3."""
    fields = {
        "soft_expiry_us": NOW_US + int(left_seconds * 1e6), "read_started_us": NOW_US - 10_000_000,
        "fetched_at_us": NOW_US - 9_000_000, "ttl_seconds": 60.0, "delta": Smoothed(2.0, 0.5), "beta": 3.0, "degree": 8,
    }  # fmt: skip
    return encode(a_header(7, **(fields | changes)), KEY.digest, b"\xa5value")


def explained(
    head: Any, record: Any = (), *, left_ms: int = 90_000, now: Any = (b"1800000000", b"0"), **process: Any
) -> Explanation:
    return explanation(KEY, [head, 106, left_ms, record, now], **process)


def record(state: str, left_seconds: float = 4.0, **fields: str) -> list[bytes]:
    given = {"state": state, "until": str(NOW_US + int(left_seconds * 1e6)), "nonce": "x", **fields}
    return [part.encode() for pair in given.items() for part in pair]


def test_explain_sends_five_reads_that_contain_no_param() -> None:
    commands = explain_reads(KEY)
    assert [command[0] for command in commands] == ["GETRANGE", "STRLEN", "PTTL", "HGETALL", "TIME"]
    assert SECRET not in str(commands)


def test_the_explanation_of_a_fresh_entry_has_the_inputs_of_its_decision() -> None:
    said = explained(entry(20.0))
    assert (said.state, said.is_invalidated, said.unreadable) == (EntryState.FRESH, False, None)
    assert said.age == pytest.approx(10)
    assert said.ttl_remaining == pytest.approx(20)
    assert said.grace_left == pytest.approx(90)
    assert (said.delta, said.beta, said.degree, said.sigma, said.lead_bound) == (2.0, 3.0, 8, 1.0, 30.0)
    assert said.probability == refresh_probability(20.0, delta_seconds=2.0, beta=3.0, ttl_seconds=60.0)
    assert "not refreshed: 20.0 s left; a refresh is 3.6 % likely now" in str(said)


def test_a_fresh_entry_is_explained_with_the_worker_that_loads_meanwhile() -> None:
    assert reason_of(explained(entry(20.0), record("running", by="celery@a:7"))).endswith("now; celery@a:7 loads it")


@pytest.mark.parametrize("left_seconds", [20.0, -3.0])
def test_the_suppression_of_this_process_is_explained(left_seconds: float) -> None:
    said = explained(entry(left_seconds), suppressed_seconds=0.4)
    assert reason_of(said).endswith("already triggered by this process, suppressed for another 0.40 s")


@pytest.mark.parametrize(
    ("fields", "next_", "line"),
    [
        (record("queued", by="web:1"), "one is queued", "queued, by web:1, 4.0 s left"),
        (record("running", by="celery@a:7", token="9"), "celery@a:7 loads it",
         "running, by celery@a:7, 4.0 s left, token 9"),
        (record("running", token="9"), "a worker loads it", "running, 4.0 s left, token 9"),
        (record("running", -1.0, by="celery@a:7", token="9"), "the next read will trigger a refresh",
         "running, by celery@a:7, expired, claimable, token 9"),
        (record("retrying", kind="deadlock", attempts="2"), "last load failed (deadlock); a retry is due",
         "retrying, 4.0 s left, deadlock after 2 attempts"),
        (record("cooling", kind="syntax", attempts="1"), "last refresh failed (syntax); cooling for another 4.0 s",
         "cooling, 4.0 s left, syntax after 1 attempt"),
        (record("cooling", kind="syntax", attempts="1", failures="3"),
         "last refresh failed (syntax); backing off for another 4.0 s",
         "cooling, 4.0 s left, syntax after 1 attempt, failed 3 times in a row"),
        (record("invalidated", generation="12", bookmarks="a\nb"), "the next read will trigger a refresh",
         "invalidated, invalidated as 12, 2 bookmarks to read after"),
        ([], "the next read will trigger a refresh", "idle"),
        ({b"state": b"queued", b"until": str(NOW_US + 1_000_000).encode()}, "one is queued", "queued, 1.0 s left"),
        (record("a state of a later release"), "the next read will trigger a refresh", "idle"),
        (Exception("WRONGTYPE"), "the next read will trigger a refresh", "idle"),
    ],
)  # fmt: skip
def test_a_stale_entry_is_explained_with_state_and_owner_of_its_lease(fields: Any, next_: str, line: str) -> None:
    said = explained(entry(-3.0), fields)
    assert said.probability == 1.0
    assert reason_of(said) == f"stale for 3.0 s: every read triggers a refresh; {next_}"
    assert dict(details_of(said))["lease"] == line


def test_an_invalidated_entry_is_stale_whatever_is_left() -> None:
    said = explained(entry(20.0, generation=8))
    assert (said.state, said.is_invalidated, said.probability) == (EntryState.STALE, True, 1.0)
    assert reason_of(said).startswith("invalidated: every read triggers")
    assert dict(details_of(said))["entry"].endswith("token 7, invalidated as 8")


def test_an_entry_loaded_since_its_invalidation_is_explained_as_last_invalidated() -> None:
    said = dict(details_of(explained(entry(20.0, generation=6), record("idle", generation="6"))))
    assert said["entry"].endswith("token 7, last invalidated as 6")
    assert said["lease"] == "idle, last invalidated as 6"


@pytest.mark.parametrize(
    ("head", "left_ms", "unreadable", "why"),
    [
        (b"", GONE, None, "there is no entry"),
        (b"", NEVER, "garbage", "the key holds no valid entry"),
        (Exception("WRONGTYPE"), NEVER, "garbage", "the key holds no valid entry"),
        (entry(5.0)[:2] + b"\x09" + entry(5.0)[3:], 90_000, "version", "the entry is of a later release"),
        (entry(5.0)[:3] + b"\x80" + entry(5.0)[4:], 90_000, "flags", "the entry needs a later release"),
        (entry(5.0)[:8] + bytes(8) + entry(5.0)[16:], 90_000, "digest", "the entry is another key's"),
        (entry(-1.0, flags=int(Flag.HANDOFF), ttl_seconds=0.0), 4_000, "handoff",
         "the value is only for reads that waited for it (TTL 0)"),
    ],
)  # fmt: skip
def test_a_miss_is_explained_with_its_reason(head: Any, left_ms: int, unreadable: str | None, why: str) -> None:
    said = explained(head, left_ms=left_ms)
    assert (said.state, said.unreadable) == (EntryState.MISS, unreadable)
    assert reason_of(said) == f"a miss: {why}; the next read will trigger a refresh and wait for it"


def test_an_explanation_needs_only_the_header_and_accepts_redis_py_s_replies() -> None:
    head = entry(20.0, bookmarks=("b" * 500,))
    said = explained(head[:700], now=(1_800_000_000, 0), left_ms=NEVER)
    assert (said.ttl_remaining, said.grace_left) == (20.0, None)
    assert "kept forever" in str(said)


def test_an_entry_without_early_refresh_is_explained_as_such() -> None:
    said = explained(entry(20.0, beta=0.0))
    assert "no early refresh (β 0)" in str(said)


def test_an_explanation_never_shows_params() -> None:
    said = explained(entry(1.0), record("queued"), queue_length=3)
    assert SECRET not in f"{said} {said!r}"
    assert "queued   3 background" in str(said)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.000_123, "0.12 ms"),
        (0.25, "0.25 s"),
        (0.999, "1.00 s"),
        (9.94, "9.9 s"),
        (41.23, "41.2 s"),
        (300, "5 min"),
        (7_200, "2.0 h"),
    ],
)
def test_a_duration_is_formatted_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("probability", "text"), [(0, "0 %"), (1, "100 %"), (0.37, "37 %"), (0.034, "3.4 %"), (1e-9, "less than 0.01 %")]
)
def test_a_probability_is_formatted_for_people(probability: float, text: str) -> None:
    assert percent(probability) == text
