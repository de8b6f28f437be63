"""The flow of one refresh, with fakes for all its dependencies: only its own logic is tested."""

from __future__ import annotations

import gc
import json
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import kombu.utils.json
import msgspec
import pytest
from redis.exceptions import OutOfMemoryError

from api_client.errors import CacheUnavailable
from api_client.protocol import messages, payload
from api_client.protocol.entry import Smoothed, decode_header, encode
from api_client.protocol.keys import make_key
from api_client.protocol.lease import (
    AcquireReply,
    AcquireStatus,
    BookmarkFault,
    Call,
    ClaimReply,
    ClaimStatus,
    CommitStatus,
    FailReply,
    RecordState,
)
from api_client.protocol.live_versions import loader_of
from api_client.protocol.messages import RefreshItem, RefreshReason, item_for
from refresher.errors import LoadFailed
from refresher.flow import nesting
from refresher.flow.dead_letters import DeadLetter
from refresher.flow.outcome import OutcomeKind
from refresher.flow.ports import RefreshDeps, WorkerEvents
from refresher.flow.refresh import Refresher
from refresher.flow.renewals import HeldLease
from refresher.graph.failures import classify_error
from refresher.queries import Loaded, Registry, query
from refresher.settings import RefreshMode, WorkerSettings
from tests.support.lease_steps import StepByStep
from tests.support.lease_world import a_header
from tests.support.payloads import read_payload

TOKEN, NOW_US, CLAIMED_AT_US = 1_000, 1_800_000_000_000_000, 1_799_999_998_000_000
ITEM = RefreshItem(query="q", params='{"n":1}', claim_number=7, reason=RefreshReason.STALE)
KEY = make_key("cache", "q", {"n": 1}, 1)
ACQUIRED = AcquireReply(
    AcquireStatus.ACQUIRED, RecordState.RUNNING, 5.0, TOKEN, NOW_US, CLAIMED_AT_US, 900, ("b1",), b""
)


def failing(kind: str = "deadlock", *, transient: bool = True, most: int | None = None) -> LoadFailed:
    return LoadFailed(kind, "as the graph said", is_transient=transient, max_attempts=most)


class Replies:
    """Replies to one step, in turn."""

    def __init__(self, *replies: Any) -> None:
        self._left = deque(replies)

    def next(self) -> Any:
        return self._left.popleft()


class Worker(WorkerEvents, StepByStep):
    """A refresher with fake dependencies, and a diary of its steps in order."""

    def __init__(self, **settings: Any) -> None:
        self.settings = WorkerSettings(**settings)
        self.diary: list[tuple[Any, ...]] = []
        self.calls: dict[str, Call[Any]] = {}
        self.replies: dict[str, Any] = {
            "acquire": ACQUIRED, "commit": CommitStatus.ACCEPTED, "retry": True, "fail": FailReply(30.0, 2, 77),
            "hand_back": 7, "versions": frozenset(),
            "claim": ClaimReply(ClaimStatus.CLAIMED, RecordState.QUEUED, 60.0, "", 0, 8, 8, NOW_US), "unclaim": True,
        }  # fmt: skip
        self.loads: deque[Any] = deque()
        self.load_seconds = 0.25
        self.now, self.u = 50.0, 0.5
        self.timeouts: list[float] = []
        self.held: list[HeldLease] = []
        self.letters: list[DeadLetter] = []
        self.shuts_down = True
        self.publish_error: Exception | None = None
        self.bury_error: Exception | None = None
        self.registry = Registry()
        query("q", ttl=300, grace=60, into=self.registry)(lambda tx, n, previous=None: n)
        self.deps = RefreshDeps(
            lease_steps=self, origin=self, encode=self._encode, registry=self.registry, keep_leases=self._hold,
            publish=self._publish, write_dead_letter=self._bury, monotonic=lambda: self.now, sleep=self._sleep,
            events=self, failure_of=self._failure_of, hands_back=lambda _: self.shuts_down, uniform=lambda: self.u,
        )  # fmt: skip
        self.refresher = Refresher(self.settings, self.deps)

    def run(self, call: Call[Any]) -> Any:
        self.diary.append((call.script,))
        self.calls[call.script] = call
        reply = self.replies[call.script]
        if isinstance(reply, Replies):
            reply = reply.next()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def load(self, _query: Any, calls: Any, _previous: Any, bookmarks: Any, timeout_seconds: float) -> list[Loaded]:
        (params,) = calls
        self.diary.append(("load", dict(params), tuple(bookmarks)))
        self.timeouts.append(timeout_seconds)
        self.now += self.load_seconds
        outcome = self.loads.popleft() if self.loads else "value"
        if isinstance(outcome, BaseException):
            raise outcome
        return [Loaded(outcome() if callable(outcome) else outcome, 10)]

    def _encode(self, value: Any, **_: Any) -> payload.Packed:
        if isinstance(value, LoadFailed):
            raise value
        return payload.Packed(payload.encode(value) if isinstance(value, str) else b"\xa5value")

    @contextmanager
    def _hold(self, leases: Sequence[HeldLease]) -> Iterator[None]:
        self.held += leases
        self.diary.append(("hold",))
        yield
        self.diary.append(("let go",))

    def _publish(self, item: RefreshItem) -> None:
        self.diary.append(("publish", item.claim_number, item.reason, item.ticket))
        if self.publish_error:
            raise self.publish_error

    def _bury(self, letter: DeadLetter, replaced_token: int) -> None:
        self.diary.append(("bury", replaced_token))
        if self.bury_error:
            raise self.bury_error
        self.letters.append(letter)

    def _failure_of(self, error: BaseException) -> LoadFailed | None:
        return None if isinstance(error, SystemExit | KeyboardInterrupt) else classify_error(error)

    def _sleep(self, seconds: float) -> None:
        self.diary.append(("sleep", seconds))
        self.now += seconds

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        self.diary.append(("failed", kind, attempts))

    def rejected(self, query: str, *, why: str) -> None:
        self.diary.append(("rejected", why))

    def committed(self, query: str, *, delta_seconds: float, run_seconds: float, as_stale: bool) -> None:
        self.diary.append(("committed", delta_seconds, run_seconds, as_stale))

    def skipped(self, query: str, *, why: str) -> None:
        self.diary.append(("skipped", why))

    def steps(self) -> list[str]:
        return [entry[0] for entry in self.diary]

    def header(self) -> Any:
        return decode_header(self.calls["commit"].args[2], KEY.digest)


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_refresh_acquires_loads_and_commits_while_its_lease_is_held(worker: Worker) -> None:
    outcome = worker.refresher.refresh(ITEM)
    assert worker.steps() == ["acquire", "hold", "load", "commit", "committed", "let go"]
    assert worker.diary[2] == ("load", {"n": 1}, ("b1",))
    assert (outcome.kind, outcome.token, outcome.why) == (OutcomeKind.COMMITTED, TOKEN, "stale")
    assert (outcome.delta_seconds, outcome.run_seconds) == (2.25, 0.25)
    assert (worker.held[0].token, worker.held[0].lease_seconds) == (TOKEN, 5.025)


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


@pytest.mark.parametrize("fault", BookmarkFault)
def test_a_failure_records_whether_bookmarks_are_at_fault(worker: Worker, fault: BookmarkFault) -> None:
    worker.loads.append(LoadFailed("bookmark", "no", is_transient=False, bookmarks=fault))
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.FAILED
    assert worker.calls["fail"].args[8] == int(fault)


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


def test_params_that_look_like_kombu_s_encoded_types_reach_the_loader_unchanged(worker: Worker) -> None:
    odd = {"n": {"__type__": "uuid", "__value__": {"hex": "zz"}}}
    item = item_for(make_key("cache", "q", odd, 1), 7, RefreshReason.STALE)
    sent = kombu.utils.json.loads(kombu.utils.json.dumps(messages.encode([item])))
    (received,) = messages.decode(sent)
    assert worker.refresher.refresh(received).kind is OutcomeKind.COMMITTED
    assert worker.diary[2] == ("load", odd, ("b1",))


def test_a_short_pause_is_waited_in_place_under_the_lease(worker: Worker) -> None:
    worker.loads.extend([failing(), failing()])
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    assert [entry[1] for entry in worker.diary if entry[0] == "sleep"] == [0.5, 1.0]
    assert worker.steps()[-2:] == ["committed", "let go"]


@pytest.mark.parametrize(
    ("load_seconds", "u", "attempt", "pause"),
    [(0.25, 0.51, 2, 2), (0.25, 0.9, 3, 4), (14.9, 0.2, 1, 1), (0.25, 0.99, 4, 8)],
    ids=["longer than a second", "later attempt", "half of the budget is used", "doubling"],
)
def test_a_longer_pause_goes_through_the_queue_in_whole_seconds(
    load_seconds: float, u: float, attempt: int, pause: int
) -> None:
    worker = Worker(retry_max=9)
    worker.load_seconds, worker.u = load_seconds, u
    worker.loads.append(failing("network"))
    item = RefreshItem(query="q", params='{"n":1}', claim_number=7, attempt=attempt, cache_attempt=2)
    outcome = worker.refresher.refresh(item)
    ticket = worker.calls["retry"].args[2]
    assert (outcome.kind, outcome.why, outcome.pause_seconds) == (OutcomeKind.RETRY, "network", pause)
    assert outcome.again == msgspec.structs.replace(item, ticket=ticket, attempt=attempt + 1, cache_attempt=0)
    assert worker.calls["retry"].args[3] == (pause + 5) * 1_000_000, "the record outlasts the pause by a slack"
    assert worker.calls["retry"].args[4:6] == ("network", attempt)
    assert "sleep" not in worker.steps()


def test_a_retry_whose_lease_is_gone_is_dropped(worker: Worker) -> None:
    worker.replies["retry"], worker.u = False, 0.99
    outcome = worker.refresher.refresh(_attempt(2, worker, failing()))
    assert (outcome.kind, outcome.again, worker.diary[-2]) == (OutcomeKind.REJECTED, None, ("rejected", "superseded"))


def _attempt(number: int, worker: Worker, *loads: Any) -> RefreshItem:
    worker.loads.extend(loads)
    return RefreshItem(query="q", params='{"n":1}', claim_number=7, attempt=number)


@pytest.mark.parametrize(
    ("settings", "failure", "attempts"),
    [
        ({}, failing("syntax", transient=False), 1),
        ({}, failing(), 4),
        ({"retry_max": 0}, failing(), 1),
        ({"retry_max": 1}, failing(), 2),
        ({"retry_enabled": False}, failing(), 1),
        ({}, failing("timeout", most=2), 2),
        ({"retry_max": 0}, failing("timeout", most=2), 1),
    ],
)
def test_a_refresh_is_abandoned_after_the_maximum_attempts_for_its_failure(
    settings: dict[str, Any], failure: LoadFailed, attempts: int
) -> None:
    worker = Worker(**settings)
    worker.u = 0.01
    worker.loads.extend([failure] * 9)
    outcome = worker.refresher.refresh(ITEM)
    assert (outcome.kind, outcome.why) == (OutcomeKind.FAILED, failure.kind)
    assert worker.steps().count("load") == attempts
    assert worker.letters[0].attempts == worker.calls["fail"].args[4] == attempts


def test_an_abandoned_refresh_first_backs_off_then_is_counted_then_dead_lettered(worker: Worker) -> None:
    worker.loads.append(failing("syntax", transient=False))
    worker.refresher.refresh(ITEM)
    assert worker.steps() == ["acquire", "hold", "load", "fail", "failed", "bury", "let go"]
    (letter,) = worker.letters
    assert (letter.query, letter.params, letter.kind, letter.token) == ("q", {"n": 1}, "syntax", TOKEN)
    assert (letter.at_us, letter.digest, letter.message) == (NOW_US + 250_000, KEY.digest.hex(), "as the graph said")
    assert (letter.failures, ("bury", 77) in worker.diary) == (2, True)  # replaces the key's previous dead letter


@pytest.mark.parametrize(
    ("kind", "longest_us"),
    [("syntax", 3_150_000_000), ("timeout", 3_150_000_000), ("graph_unavailable", 0), ("unknown_query", 0)],
)
def test_backoff_grows_for_a_fault_of_the_key_and_not_for_one_that_affects_all_keys(
    worker: Worker, kind: str, longest_us: int
) -> None:
    worker.loads.append(failing(kind, transient=False))
    worker.refresher.refresh(ITEM)
    # ⅞ of both, since the draw is one half: keys that failed together are not triggered together again.
    assert (worker.calls["fail"].args[2], worker.calls["fail"].args[7]) == (26_250_000, longest_us)


def test_a_dead_letter_that_can_t_be_written_is_logged_and_the_failure_stands(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.loads.append(failing("syntax", transient=False))
    worker.bury_error = CacheUnavailable("gone")
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.FAILED
    assert "could not write the dead letter of q " in caplog.text


def test_logs_show_the_kind_of_a_failure_but_not_its_text_which_may_contain_params(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [failing("loader_error"), failing("loader_error", transient=False)]
    for failure in failures:
        failure.__cause__ = ValueError("as the graph said")
    worker.loads.extend(failures)
    with caplog.at_level("DEBUG"):
        worker.refresher.refresh(ITEM)
    assert caplog.text.count("loader_error: ValueError") == 2
    assert "as the graph said" not in caplog.text
    assert worker.letters[0].message == "as the graph said"


@pytest.mark.parametrize("is_sensitive", [False, True])
def test_log_and_dead_letter_show_where_in_its_own_code_a_loader_failed(
    worker: Worker, caplog: pytest.LogCaptureFixture, *, is_sensitive: bool
) -> None:
    query("misread", ttl=300, grace=60, sensitive=is_sensitive, into=worker.registry)(_misreads)
    worker.loads.append(_misreads)
    worker.refresher.refresh(RefreshItem(query="misread", params='{"n":1}'))
    place = f"{__file__}:{_misreads.__code__.co_firstlineno + 1} in _misreads"
    assert f": loader_error: JSONDecodeError at {place}; " in caplog.text
    assert worker.letters[0].place == place


def _misreads(_tx: object = None, n: int = 0) -> Any:
    return json.loads("secret")  # raises in a frame of the standard library


def test_a_failure_whose_lease_is_lost_writes_no_dead_letter(worker: Worker) -> None:
    worker.replies["fail"] = None
    worker.loads.append(failing("syntax", transient=False))
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.REJECTED
    assert worker.letters == []


MISFITS = [
    (RefreshItem(query="q", version=2), "unknown_query"),
    (RefreshItem(query="q", params='{"m":1}'), "wrong_params"),
]


@pytest.mark.parametrize(("item", "kind"), MISFITS)
def test_what_no_live_worker_loads_is_abandoned_without_a_load(worker: Worker, item: RefreshItem, kind: str) -> None:
    worker.replies["versions"] = frozenset({loader_of(1, "n,previous=")})  # this worker's own
    if item.version == 2:
        worker.replies["versions"] = frozenset()
    assert worker.refresher.refresh(item).why == kind
    assert "load" not in worker.steps()


@pytest.mark.parametrize("loader", [loader_of(2, None), loader_of(2, "m")])
@pytest.mark.parametrize(("item", "kind"), MISFITS)
def test_what_a_worker_of_another_release_loads_is_passed_on_without_a_lease(
    worker: Worker, item: RefreshItem, kind: str, loader: str
) -> None:
    worker.replies["versions"] = frozenset({loader})
    pauses_seconds = []
    with_ticket = msgspec.structs.replace(item, ticket="t", attempt=3, cache_attempt=1)
    again = with_ticket
    while (outcome := worker.refresher.refresh(again)).again is not None:
        assert (outcome.kind, outcome.why) == (OutcomeKind.RETRY, kind)
        again = outcome.again
        pauses_seconds.append(outcome.pause_seconds)
    assert pauses_seconds == [0, 0, 0, 0, 1, 2, 4, 8, 8, 8]
    assert again == msgspec.structs.replace(with_ticket, passes=10)
    assert (outcome.kind, outcome.why) == (OutcomeKind.SKIPPED, kind)
    assert set(worker.steps()) == {"versions", "skipped"}


def test_a_retry_of_what_was_passed_on_before_may_be_passed_on_as_often(worker: Worker) -> None:
    worker.loads.append(failing())
    worker.u = 0.999
    outcome = worker.refresher.refresh(msgspec.structs.replace(ITEM, passes=9, attempt=3))
    assert outcome.again is not None
    assert outcome.again.passes == 0


@pytest.mark.parametrize("item", [RefreshItem(query="private", params='{"n":41}'), RefreshItem(query="nobody_knows")])
def test_the_dead_letter_of_a_sensitive_or_unknown_query_contains_no_params(worker: Worker, item: RefreshItem) -> None:
    query("private", ttl=300, grace=60, sensitive=True, into=worker.registry)(lambda tx, n: n)
    worker.loads.append(failing("syntax", transient=False))
    assert worker.refresher.refresh(item).kind is OutcomeKind.FAILED
    (letter,) = worker.letters
    assert (letter.params, letter.message) == (None, None)
    assert letter.digest


def test_a_too_large_value_or_a_failing_beta_function_abandons_the_refresh(worker: Worker) -> None:
    assert worker.refresher.refresh(_attempt(1, worker, failing("too_large", transient=False))).why == "too_large"
    query("odd", ttl=300, grace=60, beta_function=lambda beta0, degree, _: beta0 / (degree - 10), into=worker.registry)(
        lambda tx: 1
    )
    outcome = worker.refresher.refresh(RefreshItem(query="odd"))
    assert (outcome.kind, outcome.why) == (OutcomeKind.FAILED, "beta_function")


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


@pytest.mark.parametrize("status", [CommitStatus.ACCEPTED, CommitStatus.SUPERSEDED, CommitStatus.LOST])
def test_a_commit_without_an_invalidation_has_no_follow_up(worker: Worker, status: CommitStatus) -> None:
    worker.replies["commit"] = status
    worker.refresher.refresh(ITEM)
    assert not {"claim", "publish"} & set(worker.steps())


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


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_worker_that_shuts_down_hands_its_run_back_and_ends(worker: Worker, end: type[BaseException]) -> None:
    worker.loads.append(end())
    with pytest.raises(end):
        worker.refresher.refresh(_with_ticket(worker))
    assert worker.steps() == ["acquire", "hold", "load", "hand_back", "publish"]
    assert worker.diary[-1] == ("publish", 7, RefreshReason.MANUAL, "")


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_worker_that_shuts_down_while_it_acquires_hands_back_what_redis_has_granted(
    worker: Worker, end: type[BaseException]
) -> None:
    asked = interrupt_first_acquire(worker, end())
    with pytest.raises(end):
        worker.refresher.refresh(_with_ticket(worker))
    assert worker.steps() == ["acquire", "acquire", "hand_back", "publish"]
    assert asked[0].args[0] == asked[1].args[0] == worker.calls["hand_back"].args[1], "one nonce"


def test_a_worker_that_shuts_down_between_acquire_and_load_hands_its_run_back(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(_query: str) -> None:
        raise SystemExit

    monkeypatch.setattr(worker, "acquired", end)
    with pytest.raises(SystemExit):
        worker.refresher.refresh(ITEM)
    assert worker.steps() == ["acquire", "hand_back", "publish"]


def test_a_process_that_ends_alone_while_it_acquires_hands_nothing_back(worker: Worker) -> None:
    worker.shuts_down = False
    interrupt_first_acquire(worker, SystemExit())
    with pytest.raises(SystemExit):
        worker.refresher.refresh(ITEM)
    assert worker.steps() == ["acquire"]


def interrupt_first_acquire(worker: Worker, end: BaseException) -> list[Call[Any]]:
    """Return the list of calls to come."""
    asked: list[Call[Any]] = []
    run = worker.run

    def interrupted(call: Call[Any]) -> Any:
        reply = run(call)
        if call.script == "acquire":
            asked.append(call)
            if len(asked) == 1:
                raise end
        return reply

    worker.run = interrupted  # type: ignore[method-assign]
    return asked


def test_a_run_ended_by_the_hard_limit_is_not_handed_back(worker: Worker) -> None:
    worker.load_seconds = worker.settings.soft_limit_seconds
    worker.loads.append(SystemExit())
    with pytest.raises(SystemExit):
        worker.refresher.refresh(_with_ticket(worker))
    assert worker.steps() == ["acquire", "hold", "load"]


def _with_ticket(_: Worker) -> RefreshItem:
    return RefreshItem(query="q", params='{"n":1}', claim_number=7, ticket="used up")


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_run_handed_back_that_can_t_be_published_is_unclaimed_and_the_worker_ends(
    worker: Worker, end: type[BaseException]
) -> None:
    worker.loads.append(end())
    worker.publish_error = ConnectionError("no broker")
    with pytest.raises(end):
        worker.refresher.refresh(ITEM)
    assert worker.steps()[-3:] == ["hand_back", "publish", "unclaim"]
    assert worker.calls["unclaim"].args[0] == worker.calls["acquire"].args[0], "the run's nonce is the claim's id"


@pytest.mark.parametrize("step", ["hand_back", "unclaim"])
def test_a_worker_that_shuts_down_ends_even_without_redis(worker: Worker, step: str) -> None:
    worker.loads.append(SystemExit())
    worker.publish_error = ConnectionError("no broker")
    worker.replies[step] = CacheUnavailable("gone")
    with pytest.raises(SystemExit):
        worker.refresher.refresh(ITEM)


def test_a_run_whose_lease_is_lost_is_not_republished_at_shutdown(worker: Worker) -> None:
    worker.replies["hand_back"] = 0
    worker.loads.append(SystemExit())
    with pytest.raises(SystemExit):
        worker.refresher.refresh(ITEM)
    assert "publish" not in worker.steps()


def test_without_redis_at_the_commit_the_error_is_raised_and_no_dead_letter_written(worker: Worker) -> None:
    def lost(call: Call[Any]) -> Any:
        if call.script == "commit":
            raise CacheUnavailable("gone")
        return worker.replies[call.script]

    unavailable: Callable[[Call[Any]], Any] = lost
    worker.run = unavailable  # type: ignore[method-assign]
    with pytest.raises(CacheUnavailable):
        worker.refresher.refresh(ITEM)
    assert worker.letters == []


def test_each_attempt_gets_the_rest_of_the_time_budget(worker: Worker) -> None:
    worker.load_seconds = 4.0
    worker.loads.extend([failing(), failing()])
    worker.refresher.refresh(ITEM)
    assert worker.timeouts == [27.0, 25.5, 20.5]


@pytest.mark.parametrize(("attempts", "settings"), [(4, {}), (1, {"retry_max": 0}), (1, {"retry_enabled": False})])
def test_a_key_whose_runs_were_taken_over_is_abandoned_instead_of_loaded(
    attempts: int, settings: dict[str, Any]
) -> None:
    worker = Worker(**settings)
    worker.replies["acquire"] = replace(ACQUIRED, attempts=attempts)
    outcome = worker.refresher.refresh(ITEM)
    assert (outcome.kind, outcome.why, outcome.attempts) == (OutcomeKind.FAILED, "taken_over", attempts)
    assert worker.diary == [("acquire",), ("fail",), ("failed", "taken_over", attempts), ("bury", 77)]
    assert worker.calls["fail"].args[:2] == (TOKEN, worker.calls["acquire"].args[0])
    assert (worker.letters[0].kind, worker.letters[0].attempts) == ("taken_over", attempts)


def test_runs_that_were_taken_over_count_with_the_attempts_of_the_next_one(worker: Worker) -> None:
    worker.replies["acquire"] = replace(ACQUIRED, attempts=2)
    worker.loads.append(failing())
    outcome = worker.refresher.refresh(ITEM)
    assert (outcome.kind, outcome.why, outcome.attempts) == (OutcomeKind.RETRY, "deadlock", 3)
    assert outcome.again is not None
    assert (outcome.again.attempt, worker.calls["retry"].args[5]) == (4, 3)


def test_a_process_that_ends_hands_back_only_the_runs_under_way(worker: Worker) -> None:
    worker.refresher.refresh(ITEM)
    worker.refresher.hand_back_all()
    assert "hand_back" not in worker.steps()
    nonces: list[Any] = []

    def load(*_: Any) -> list[Loaded]:
        worker.refresher.hand_back_all()
        nonces.append(worker.calls["hand_back"].args[1])
        return [Loaded("value")]

    worker.load = load  # type: ignore[method-assign]
    worker.refresher.refresh(ITEM)
    assert nonces == [worker.calls["acquire"].args[0]]
    assert worker.steps()[-5:] == ["hand_back", "publish", "commit", "committed", "let go"]


def test_the_value_of_a_failed_refresh_is_not_kept_in_memory(worker: Worker) -> None:
    class Large:
        """A value of megabytes."""

    value = Large()
    gone = weakref.ref(value)

    def encode_fails(value: object, **_: Any) -> payload.Packed:
        raise failing("too_large", transient=False)

    refresher = Refresher(worker.settings, replace(worker.deps, encode=encode_fails))
    worker.loads.append(value)
    del value
    gc.disable()
    try:
        assert refresher.refresh(ITEM).why == "too_large"
        assert gone() is None
    finally:
        gc.enable()


def test_a_run_in_place_says_so_as_it_acquires(worker: Worker) -> None:
    worker.refresher.refresh(ITEM)
    assert worker.calls["acquire"].args[-1] == 0
    worker.refresher.with_deps(replace(worker.deps, is_in_place=True)).refresh(ITEM)
    assert worker.calls["acquire"].args[-1] == 1


def test_a_load_has_no_more_time_than_what_is_around_it(worker: Worker) -> None:
    with nesting.within((), 3.0):
        worker.refresher.refresh(ITEM)
    assert 2.0 < worker.timeouts[0] <= 3.0


@pytest.mark.parametrize("kind", ["timeout", "bookmark_timeout"])
def test_a_load_that_ran_out_of_the_time_around_it_is_handed_back(worker: Worker, kind: str) -> None:
    worker.loads.append(failing(kind))
    with nesting.within((), 0.0), pytest.raises(nesting.OutOfTime):
        worker.refresher.refresh(ITEM)
    assert worker.steps() == ["acquire", "hold", "load", "hand_back", "publish"]


def test_a_load_that_failed_in_time_otherwise_counts(worker: Worker) -> None:
    worker.loads.append(failing("syntax", transient=False))
    with nesting.within((), 0.0):
        assert worker.refresher.refresh(ITEM).kind is OutcomeKind.FAILED


def test_a_retry_that_would_outlast_what_is_around_it_goes_through_the_queue(worker: Worker) -> None:
    worker.loads.append(failing())
    with nesting.within((), 0.01):
        assert worker.refresher.refresh(ITEM).kind is OutcomeKind.RETRY


def test_the_loader_of_a_key_that_waits_for_itself_is_told_so(worker: Worker) -> None:
    def read_itself() -> object:
        nesting.check(KEY)
        return "unreached"

    worker.loads.append(read_itself)
    worker.failure_of = classify_error
    assert worker.refresher.refresh(ITEM).why == "cycle"
    assert worker.calls["fail"].args[-1] == "it reads itself: q → q"


@pytest.mark.parametrize(("shows", "sensitive"), [(True, False), (True, True), (False, False)])
def test_logs_and_readers_have_a_failure_s_text_only_where_that_was_asked_for(
    caplog: pytest.LogCaptureFixture, *, shows: bool, sensitive: bool
) -> None:
    worker = Worker(show_failures=shows)
    queries = Registry()
    query("q", ttl=300, grace=60, sensitive=sensitive, into=queries)(_refuses_its_card)
    worker.deps = replace(worker.deps, registry=queries)
    worker.refresher = Refresher(worker.settings, worker.deps)
    worker.loads += [_refuses_its_card, failing("syntax", transient=False)]
    caplog.set_level("INFO")
    assert worker.refresher.refresh(ITEM).why == "syntax"
    told = str(worker.calls["fail"].args[-1])
    texts = ["loader_error: RuntimeError: no such card: 4711 at ", "syntax: as the graph said"]
    assert [text in caplog.text for text in texts] == [shows and not sensitive] * 2
    assert told == ("as the graph said" if shows and not sensitive else "")
    assert ("4711" in caplog.text) == (shows and not sensitive)


def _refuses_its_card(*_: object, **__: object) -> object:
    raise RuntimeError("no such card: 4711")


def full() -> CacheUnavailable:
    error = CacheUnavailable("full")
    error.__cause__ = OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
    return error


def test_a_commit_for_which_redis_has_no_memory_is_repeated_and_not_loaded_again(worker: Worker) -> None:
    worker.replies["commit"] = Replies(full(), full(), CommitStatus.ACCEPTED)
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    assert worker.steps().count("load") == 1
    assert worker.steps().count("commit") == 3


def test_a_value_that_a_full_redis_never_takes_cools_its_key_and_says_why(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.replies["commit"] = full()
    for _ in range(2):
        outcome = worker.refresher.refresh(ITEM)
        assert (outcome.kind, outcome.why) == (OutcomeKind.FAILED, "cache_full")
    assert worker.calls["fail"].args[3] == "cache_full"
    assert "Redis has no memory for it" in str(worker.calls["fail"].args[-1])
    assert [letter.kind for letter in worker.letters] == ["cache_full"] * 2
    reasons = [record for record in caplog.records if "the cache is full" in record.getMessage()]
    assert len(reasons) == 1, "once per outage"
    assert "used memory > 'maxmemory'" in reasons[0].getMessage()
    worker.replies["commit"] = CommitStatus.ACCEPTED
    worker.refresher.refresh(ITEM)
    worker.replies["commit"] = full()
    worker.refresher.refresh(ITEM)
    assert sum("the cache is full" in record.getMessage() for record in caplog.records) == 2


def test_redis_that_is_lost_while_it_is_full_is_an_outage(worker: Worker) -> None:
    worker.replies["commit"] = Replies(full(), CacheUnavailable("gone"))
    with pytest.raises(CacheUnavailable, match="gone"):
        worker.refresher.refresh(ITEM)


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
