"""Terms that a loader's result sets, and refreshes whose result has set wrong ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api_client.errors import CacheUnavailable
from refresher import Result
from refresher.flow.outcome import OutcomeKind
from refresher.queries import Loaded
from tests.support.fake_refresher import ITEM, Worker
from tests.unit.refresher.flow.test_tags import TaggedWorker


class Rows(list[str]):
    """A driver's list, whose length can't be determined any more."""

    def __len__(self) -> int:
        raise RuntimeError("closed")


def worker_of(returned: Any, tags: Any = None, **options: Any) -> TaggedWorker:
    worker = TaggedWorker(tags, **options)
    worker.replies |= {"register": 1}
    worker.loads.append(returned)
    return worker


def lives_of(worker: Worker) -> tuple[float, float]:
    """Return the TTL in the header, and how long Redis keeps the entry, in seconds."""
    return worker.header().ttl_seconds, worker.calls["commit"].args[3] / 1_000  # type: ignore[operator]


@pytest.mark.parametrize(
    ("returned", "options", "lives"),
    [
        ("value", {}, (300, 360)),
        (Result("value"), {}, (300, 360)),
        (Result("value", ttl="1m"), {}, (60, 120)),
        (Result("value", ttl=1.5, grace=timedelta(minutes=1)), {}, (1.5, 61.5)),
        (Result("value", grace=0), {}, (300, 300)),
        (Result("value", ttl="10h"), {}, (36_000, 36_060)),
        (Result("value", ttl="1m"), {"ttl": 0, "grace": None}, (60, 60)),
        (None, {}, (300, 360)),
        *((empty, {"negative_ttl": 10}, (10, 70)) for empty in (None, "", [], {}, (), set(), b"")),
        *((full, {"negative_ttl": 10}, (300, 360)) for full in (0, False, "x", [None])),
        (Rows(), {"negative_ttl": 10}, (10, 70)),
        (Result([]), {"negative_ttl": 10}, (10, 70)),
        (Result([], ttl=20), {"negative_ttl": 10}, (20, 80)),
        (Result([], negative=False), {"negative_ttl": 10}, (300, 360)),
        (Result("none there", negative=True), {"negative_ttl": 10}, (10, 70)),
    ],
)
def test_ttl_and_grace_of_a_value_follow_its_result_and_the_negative_ttl(
    returned: Any, options: dict[str, Any], lives: tuple[float, float]
) -> None:
    worker = worker_of(returned, **options)
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    assert lives_of(worker) == lives
    assert worker.header().soft_expiry_us == worker.header().fetched_at_us + int(lives[0] * 1e6)


@pytest.mark.parametrize("tags", [["of the query"], lambda value, n: ["of the query", "its own"]])
def test_a_result_s_tags_are_added_to_the_query_s(tags: Any) -> None:
    worker = worker_of(Result("value", tags=["its own", "its own"]), tags=tags)
    worker.refresher.refresh(ITEM)
    assert worker.header().tags == ("of the query", "its own")


def test_a_version_registration_lasts_as_long_as_its_longest_entry() -> None:
    """Otherwise an invalidation of the key would no longer find the version."""
    worker = worker_of(Result("value", ttl="10h"))
    worker.refresher.refresh(ITEM)
    assert worker.rounds == [["acquire"], ["register"], ["commit"]]
    version, lives_ms = worker.calls["register"].args
    assert version == 1
    assert lives_ms > 36_060_000  # type: ignore[operator]


def test_a_value_whose_version_could_not_be_registered_is_not_committed() -> None:
    worker = worker_of(Result("value", ttl="10h"))
    worker.replies["register"] = CacheUnavailable("away")
    with pytest.raises(CacheUnavailable):
        worker.refresher.refresh(ITEM)
    assert "commit" not in worker.steps()


@pytest.mark.parametrize(
    ("returned", "kind", "says"),
    [
        (Result("value", ttl=-1), "result", "ttl=-1"),
        (Result("value", ttl="soon"), "result", "ttl='soon'"),
        (Result("value", ttl=float("nan")), "result", "ttl=nan"),
        (Result("value", ttl="4000d"), "result", "at most ten years"),
        (Result("value", grace=-1), "result", "grace=-1"),
        (Result("value", grace=[]), "result", "grace=[]"),  # type: ignore[arg-type]
        (Result("value", negative="no"), "result", "negative='no'"),  # type: ignore[arg-type]
        (Result("value", negative=True), "result", "has a negative_ttl"),
        (Result("value", tags=["x"]), "tags", "where the query declares some"),
        (Result("value", tags="x"), "tags", "tags of type str"),
        (Result("value", tags=[1]), "tags", "a tag of type int"),  # type: ignore[list-item]
    ],
)
def test_wrong_terms_are_one_permanent_error_and_the_stale_value_stays(returned: Any, kind: str, says: str) -> None:
    worker = worker_of(returned)
    outcome = worker.refresher.refresh(ITEM)
    assert (outcome.kind, outcome.why, outcome.attempts) == (OutcomeKind.FAILED, kind, 1)
    assert "commit" not in worker.steps()
    (letter,) = worker.letters
    assert says in letter.message


def test_tags_that_a_load_has_found_are_the_entrys() -> None:
    worker = worker_of(Loaded(Result("value", tags=["own"]), tags=("Person:id=1", "Person:*")), "auto")
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    assert worker.header().tags == ("Person:id=1", "Person:*", "own")


def test_a_value_that_was_built_on_an_invalidated_one_is_stale_at_once() -> None:
    worker = worker_of(Loaded("value", tags=("Person:id=1",), is_outdated=True), "auto")
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    header = worker.header()
    assert header.soft_expiry_us == header.fetched_at_us
    assert header.ttl_seconds == 300
