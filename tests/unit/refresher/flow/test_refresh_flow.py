"""The flow of one refresh, with fakes for all its dependencies: only its own logic is tested."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from api_client.protocol import messages
from api_client.protocol.entry import Smoothed, decode_header, encode
from api_client.protocol.keys import make_key
from api_client.protocol.lease import (
    AcquireReply,
    AcquireStatus,
    Call,
    ClaimReply,
    ClaimStatus,
    CommitStatus,
    RecordState,
)
from api_client.protocol.messages import RefreshItem, RefreshReason
from refresher.flow import nesting
from refresher.flow.outcome import OutcomeKind
from refresher.flow.refresh import Refresher
from refresher.queries import Registry, query
from refresher.settings import RefreshMode
from tests.support.fake_refresher import ACQUIRED, CLAIMED_AT_US, ITEM, KEY, NOW_US, TOKEN, Worker, failing
from tests.support.lease_world import a_header
from tests.support.payloads import read_payload


def test_a_refresh_acquires_loads_and_commits_while_its_lease_is_held(worker: Worker) -> None:
    outcome = worker.refresher.refresh(ITEM)
    assert worker.steps() == ["acquire", "hold", "load", "commit", "committed", "let go"]
    assert worker.diary[2] == ("load", {"n": 1}, ("b1",))
    assert (outcome.kind, outcome.token, outcome.why) == (OutcomeKind.COMMITTED, TOKEN, "stale")
    assert (outcome.delta_seconds, outcome.run_seconds) == (2.25, 0.25)
    assert (worker.held[0].token, worker.held[0].lease_seconds) == (TOKEN, 5.025)


@pytest.mark.parametrize(
    ("generation", "before", "status", "stale_seconds"),
    [
        (NOW_US - 3_000_000, None, CommitStatus.ACCEPTED, 3.25),
        (0, {"token": 7, "generation": NOW_US - 2_000_000}, CommitStatus.ACCEPTED, 2.25),
        (NOW_US - 3_000_000, {"token": NOW_US - 2_000_000}, CommitStatus.ACCEPTED, None),
        (0, None, CommitStatus.ACCEPTED, None),
        (NOW_US - 3_000_000, None, CommitStatus.ACCEPTED_AS_STALE, None),
        (NOW_US - 3_000_000, None, CommitStatus.SUPERSEDED, None),
    ],
    ids=["record", "entry", "loaded since", "never", "invalidated again", "rejected"],
)
def test_for_how_long_an_entry_was_stale_is_recorded_once_its_invalidation_is_repaired(
    worker: Worker,
    monkeypatch: pytest.MonkeyPatch,
    generation: int,
    before: dict[str, int] | None,
    status: CommitStatus,
    stale_seconds: float | None,
) -> None:
    found: list[tuple[str, str, float]] = []
    monkeypatch.setattr(worker, "was_stale", lambda query, *, until, seconds: found.append((query, until, seconds)))
    header = b"" if before is None else encode(a_header(**before), KEY.digest, b"")
    worker.replies |= {"acquire": replace(ACQUIRED, generation=generation, entry_header=header), "commit": status}
    worker.refresher.refresh(ITEM)
    assert found == ([] if stale_seconds is None else [("q", "stored", stale_seconds)])


def test_each_run_has_a_nonce_of_its_own(worker: Worker) -> None:
    """A reused nonce would let a run that was taken over go on, and commit, as its successor."""
    nonces = set()
    for process in (worker, worker, Worker()):
        process.refresher.refresh(ITEM)
        nonces.add(process.calls["acquire"].args[0])
        assert process.calls["commit"].args[1] == process.calls["acquire"].args[0]
    assert len(nonces) == 3
    assert {len(nonce) for nonce in nonces} == {8}


def test_the_header_records_token_times_delta_degree_and_beta_of_the_run() -> None:
    worker = Worker(refresh_mode=RefreshMode.TOPOLOGY_SENSITIVE)
    worker.refresher.refresh(ITEM)
    header = worker.header()
    assert (header.token, header.generation, header.bookmarks, header.nonce) == (
        TOKEN, 900, ("b1",), worker.calls["acquire"].args[0],
    )  # fmt: skip
    assert (header.read_started_us, header.fetched_at_us) == (NOW_US, NOW_US + 250_000)
    assert header.soft_expiry_us == NOW_US + 250_000 + 300_000_000
    assert (header.delta, header.run) == (Smoothed(2.25, 1.125), Smoothed(0.25, 0.125))
    assert (header.degree, header.beta) == (10, pytest.approx(3.3026, abs=1e-3))
    assert worker.calls["commit"].args[3] == 360_000


@pytest.mark.parametrize(
    ("age_seconds", "kept", "expected"),
    [
        (60, ("b0", "b1"), ("b0", "b1")),
        (60, tuple(f"a{n}" for n in range(20)), (*(f"a{n}" for n in range(20)), "b1")),
        (61, ("b0",), ("b1",)),
    ],
)
def test_a_load_also_reads_after_the_recent_bookmarks_of_the_existing_entry(
    worker: Worker, age_seconds: int, kept: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    at_us = NOW_US - age_seconds * 1_000_000
    header = a_header(7, read_started_us=at_us, fetched_at_us=at_us, bookmarks=kept)
    entry = encode(header, KEY.digest, b"")
    worker.replies["acquire"] = replace(ACQUIRED, entry_header=entry)
    worker.refresher.refresh(ITEM)
    assert worker.diary[2] == ("load", {"n": 1}, expected)
    assert worker.header().bookmarks == expected


@pytest.mark.parametrize(("length", "is_compressed"), [(16_381, True), (16_380, False)])
def test_a_payload_of_the_minimum_size_or_more_is_stored_compressed_and_marked_in_the_header(
    worker: Worker, length: int, *, is_compressed: bool
) -> None:
    loaded = "x" * length  # MessagePack puts three bytes before it
    worker.loads.append(loaded)
    worker.refresher.refresh(ITEM)
    header, raw = worker.header(), worker.calls["commit"].args[2]
    assert (header.is_compressed, len(raw) < 200) == (is_compressed, is_compressed)
    value = read_payload(raw, offset=header.length, is_compressed=is_compressed, query="q", max_bytes=20_000)
    assert value == loaded


def test_a_load_is_given_the_newest_bookmarks_that_a_header_has_room_for(worker: Worker) -> None:
    given = tuple(f"{n:02d}{'x' * 1_022}" for n in range(60))
    worker.replies["acquire"] = replace(ACQUIRED, bookmarks=given)
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    assert worker.header().bookmarks == given[-47:]


def test_lease_time_delta_and_run_time_are_smoothed_from_those_of_the_previous_entry(worker: Worker) -> None:
    before = a_header(5, delta=Smoothed(1.0, 0.5), run=Smoothed(2.0, 1.0))
    header = encode(before, KEY.digest, b"")
    worker.replies["acquire"] = AcquireReply(
        AcquireStatus.ACQUIRED, RecordState.RUNNING, 5.0, TOKEN, NOW_US, CLAIMED_AT_US, 0, (), header
    )
    worker.refresher.refresh(ITEM)
    assert worker.held[0].lease_seconds == pytest.approx(3 * (2.0 + 4 * 1.0) + 0.025)
    assert worker.header().delta.mean == pytest.approx(0.875 * 1.0 + 0.125 * 2.25)
    assert worker.header().run.mean == pytest.approx(0.875 * 2.0 + 0.125 * 0.25)


@pytest.mark.parametrize("reason", RefreshReason)
def test_delta_includes_the_wait_in_the_queue_only_for_early_and_stale_refreshes(
    worker: Worker, reason: RefreshReason
) -> None:
    worker.refresher.refresh(msgspec.structs.replace(ITEM, reason=reason))
    waits_as_early = reason in {RefreshReason.EARLY, RefreshReason.STALE}
    assert worker.header().delta.mean == (2.25 if waits_as_early else 0.25)


def test_the_time_that_an_acquire_took_counts_against_its_lease(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = worker.run

    def slow(call: Call[Any]) -> Any:
        worker.now += 3.0 if call.script == "acquire" else 0.0
        return run(call)

    monkeypatch.setattr(worker, "run", slow)
    worker.refresher.refresh(ITEM)
    (held,) = worker.held
    assert held.granted_seconds == pytest.approx(ACQUIRED.left_seconds - 3.0)


def test_a_ttl_of_0_commits_a_handoff(worker: Worker) -> None:
    query("handed", ttl=0, into=worker.registry)(lambda tx: 1)
    worker.refresher.refresh(RefreshItem(query="handed"))
    raw = worker.calls["commit"].args[2]
    header = decode_header(raw, make_key("cache", "handed", {}, 1).digest)
    assert (header.is_handoff, header.soft_expiry_us) == (True, header.fetched_at_us)
    assert worker.calls["commit"].args[3] == 5_000


@pytest.mark.parametrize(
    ("status", "state", "why"),
    [
        (AcquireStatus.ALREADY_FRESH, RecordState.IDLE, "already_fresh"),
        (AcquireStatus.HELD, RecordState.RUNNING, "running"),
        (AcquireStatus.HELD, RecordState.COOLING, "cooling"),
    ],
)
def test_without_the_lease_nothing_is_loaded(
    worker: Worker, status: AcquireStatus, state: RecordState, why: str
) -> None:
    worker.replies["acquire"] = AcquireReply(status, state, 3.0, 0, NOW_US, 0, 0, (), b"")
    outcome = worker.refresher.refresh(ITEM)
    assert (outcome.kind, outcome.why) == (OutcomeKind.SKIPPED, why)
    assert worker.diary == [("acquire",), ("skipped", why)]


@pytest.mark.parametrize(
    "item",
    [
        RefreshItem(query="a b"),
        *(RefreshItem(query="q", params=text) for text in ("", "secret", '{"n": secret}', '["secret"]', '"secret"')),
        *(RefreshItem(query="q", params=text) for text in ('{"secret word": 1}', '{"n": NaN}', '{"n": "\\ud800"}')),
        RefreshItem(query="q", params='{"n":' + "[" * 16_000 + "]" * 300 + "}"),
        RefreshItem(query="q", params='{"n":' + "9" * 16_000 + "}"),
        RefreshItem(query="q", params='{"n":"' + "secret" * 16_000 + '"}'),
        RefreshItem(query="q", params="{}" + " " * 16_384),
        RefreshItem(query="q", params="null"),
    ],
    ids=lambda item: item.params[:20],
)
def test_an_item_that_can_have_no_key_is_skipped_and_its_content_is_not_logged(
    worker: Worker, item: RefreshItem, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = worker.refresher.refresh(item)
    assert (outcome.kind, outcome.why) == (OutcomeKind.SKIPPED, "malformed")
    assert worker.diary == []
    assert "invalid refresh request" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("status", "kind", "seen"),
    [
        (CommitStatus.ACCEPTED_AS_STALE, OutcomeKind.COMMITTED_AS_STALE, TOKEN),
        (CommitStatus.INVALIDATED, OutcomeKind.REJECTED, 0),
    ],
)
def test_a_run_invalidated_while_it_loads_claims_and_publishes_a_follow_up(
    worker: Worker, status: CommitStatus, kind: OutcomeKind, seen: Any
) -> None:
    worker.replies["commit"] = status
    assert worker.refresher.refresh(ITEM).kind is kind
    assert ("publish", 8, RefreshReason.INVALIDATED, "") in worker.diary
    assert worker.calls["claim"].args[1] == seen
    assert worker.steps().count("claim") == worker.steps().count("publish") == 1


def test_a_follow_up_that_another_has_claimed_is_not_published(worker: Worker) -> None:
    worker.replies["commit"] = CommitStatus.ACCEPTED_AS_STALE
    worker.replies["claim"] = ClaimReply(ClaimStatus.REFUSED, RecordState.QUEUED, 1.0, "", 0, 9, 8, NOW_US)
    worker.refresher.refresh(ITEM)
    assert "publish" not in worker.steps()


def test_a_follow_up_that_can_t_be_published_is_unclaimed_and_the_commit_stands(worker: Worker) -> None:
    worker.replies["commit"] = CommitStatus.ACCEPTED_AS_STALE
    worker.publish_error = ConnectionError("no broker")
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED_AS_STALE
    assert worker.calls["unclaim"].args[0] == worker.calls["claim"].args[0]


def test_a_run_in_place_says_so_as_it_acquires(worker: Worker) -> None:
    worker.refresher.refresh(ITEM)
    assert worker.calls["acquire"].args[-1] == 0
    worker.refresher.with_deps(replace(worker.deps, is_in_place=True)).refresh(ITEM)
    assert worker.calls["acquire"].args[-1] == 1


def test_a_load_has_no_more_time_than_what_is_around_it(worker: Worker) -> None:
    with nesting.within((), 3.0):
        worker.refresher.refresh(ITEM)
    assert 2.0 < worker.timeouts[0] <= 3.0


def test_a_load_that_failed_in_time_otherwise_counts(worker: Worker) -> None:
    worker.loads.append(failing("syntax", transient=False))
    with nesting.within((), 0.0):
        assert worker.refresher.refresh(ITEM).kind is OutcomeKind.FAILED
    assert worker.timeouts == [0.01], "0 would be none for the graph"


def test_a_retry_that_would_outlast_what_is_around_it_goes_through_the_queue(worker: Worker) -> None:
    worker.loads.append(failing())
    with nesting.within((), 0.01):
        assert worker.refresher.refresh(ITEM).kind is OutcomeKind.RETRY


def test_the_loader_of_a_key_that_waits_for_itself_is_told_so(worker: Worker) -> None:
    def read_itself() -> object:
        nesting.check(KEY)
        return "unreached"

    worker.loads.append(read_itself)
    assert worker.refresher.refresh(ITEM).why == "cycle"
    assert worker.calls["fail"].args[-1] == "it reads itself: q → q"


@pytest.mark.parametrize(
    ("of_settings", "of_query", "u", "fresh_seconds"),
    [(0.0, None, 0.9, 300), (0.2, None, 0.5, 270), (0.2, 0, 0.5, 300), (0.0, "10%", 1.0, 270), (0.5, 0.1, 0.0, 300)],
)
def test_a_value_expires_earlier_by_a_random_share_of_its_ttl_and_never_later(
    of_settings: float, of_query: Any, u: float, fresh_seconds: float
) -> None:
    worker = Worker(ttl_jitter=of_settings)
    worker.u = u
    queries = Registry()
    query("q", ttl=300, grace=60, jitter=of_query, into=queries)(lambda tx, n: n)
    Refresher(worker.settings, replace(worker.deps, registry=queries)).refresh(ITEM)
    header = worker.header()
    assert (header.soft_expiry_us - header.fetched_at_us) / 1e6 == pytest.approx(fresh_seconds)
    assert header.ttl_seconds == 300
    assert worker.calls["commit"].args[3] == 360_000, "it is kept for as long as ever"


# Messages that a worker sends again: they keep the trace of the first one.


TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
TRACED = msgspec.structs.replace(ITEM, trace=TRACE)


class Publishing(Worker):
    """A worker that keeps what it publishes, as another worker would read it."""

    def _publish(self, item: RefreshItem) -> None:
        (self.sent,) = messages.decode(messages.encode([item]))


def test_the_refresh_after_an_invalidation_keeps_the_trace() -> None:
    worker = Publishing()
    worker.replies["commit"] = CommitStatus.ACCEPTED_AS_STALE
    worker.refresher.refresh(TRACED)
    assert worker.sent.trace == TRACE


def test_a_run_that_is_handed_back_keeps_the_trace() -> None:
    worker = Publishing()
    worker.loads.append(SystemExit())
    with pytest.raises(SystemExit):
        worker.refresher.refresh(TRACED)
    assert worker.sent.trace == TRACE


def test_the_next_attempt_keeps_the_trace() -> None:
    worker = Publishing()
    worker.load_seconds = 20.0  # no pause in place is left in the budget
    worker.loads.append(failing())
    again = worker.refresher.refresh(TRACED).again
    assert messages.decode(messages.encode([again])) == [again]
    assert (again.attempt, again.trace) == (2, TRACE)


def test_a_refresh_without_a_trace_is_resent_without_one() -> None:
    worker = Publishing()
    worker.replies["commit"] = CommitStatus.INVALIDATED
    worker.refresher.refresh(ITEM)
    assert "trace" not in messages.encode([worker.sent])["items"][0]
