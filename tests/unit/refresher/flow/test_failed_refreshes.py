"""Refreshes that fail, with fakes for all dependencies: retries, backoff, dead letters, logs, and what is passed on."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from redis.exceptions import OutOfMemoryError

from api_client.errors import CacheUnavailable
from api_client.protocol import payload
from api_client.protocol.lease import BookmarkFault, CommitStatus
from api_client.protocol.live_versions import loader_of
from api_client.protocol.messages import RefreshItem
from refresher.errors import LoadFailed
from refresher.flow.outcome import OutcomeKind
from refresher.flow.refresh import Refresher
from refresher.queries import Registry, query
from tests.support.fake_refresher import ACQUIRED, ITEM, KEY, NOW_US, TOKEN, Replies, Worker, failing


@pytest.mark.parametrize("fault", BookmarkFault)
def test_a_failure_records_whether_bookmarks_are_at_fault(worker: Worker, fault: BookmarkFault) -> None:
    worker.loads.append(LoadFailed("bookmark", "no", is_transient=False, bookmarks=fault))
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.FAILED
    assert worker.calls["fail"].args[8] == int(fault)


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
    item = RefreshItem(query="q", params='{"n":1}', claim_number=7, attempt=attempt, cache_attempt=2, passes=9)
    outcome = worker.refresher.refresh(item)
    ticket = worker.calls["retry"].args[2]
    assert (outcome.kind, outcome.why, outcome.pause_seconds) == (OutcomeKind.RETRY, "network", pause)
    assert outcome.again == msgspec.structs.replace(item, ticket=ticket, attempt=attempt + 1, cache_attempt=0, passes=0)
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


def test_without_redis_at_the_commit_the_error_is_raised_and_no_dead_letter_written(worker: Worker) -> None:
    worker.replies["commit"] = CacheUnavailable("gone")
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
    assert (outcome.again.attempt, worker.calls["retry"].args[5]) == (4, 3)


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
    caplog.set_level("DEBUG")
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
