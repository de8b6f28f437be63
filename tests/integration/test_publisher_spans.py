"""Whatever becomes of a trigger, its span says so; one that never was a refresh of its own leaves none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api_client import RefreshReason
from api_client.observe.otel import OTelReaderSpans
from refresher.embedded import RedisServer
from tests.integration.test_publisher import make_older
from tests.support.publisher_bench import Bench, Diary, Script
from tests.support.told_spans import SpanMemory, tree_of

SHOWN = ("refresher.outcome", "refresher.why", "error.type")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> SpanMemory:
    memory = SpanMemory()
    monkeypatch.setattr(Diary, "spans", OTelReaderSpans(memory.tracer), raising=False)
    return memory


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def bench(clean_redis: RedisServer, script: Script, memory: SpanMemory) -> Iterator[Bench]:
    made = Bench(clean_redis, script, queue_size=10)
    yield made
    made.close()


def test_what_was_claimed_already_is_deduplicated(bench: Bench, memory: SpanMemory) -> None:
    bench.handle(bench.trigger(1))
    memory.forget()
    bench.handle(bench.trigger(1))
    assert tree_of(memory.spans, *SHOWN) == [
        "refresh q INTERNAL refresher.outcome=deduplicated refresher.why=queued",
        "  claim CLIENT",
    ]


def test_one_that_can_t_be_published_has_failed_and_so_has_its_message(
    bench: Bench, script: Script, memory: SpanMemory
) -> None:
    script.error = lambda _: OSError("c4nary")
    bench.handle(bench.trigger(1))
    assert tree_of(memory.spans, *SHOWN) == [
        "refresh q INTERNAL refresher.outcome=failed refresher.why=OSError error.type=OSError",
        "  claim CLIENT",
        "  send cache.refresh PRODUCER error.type=OSError",
    ]
    assert not any(any(span.texts) for span in memory.spans)


def test_one_beyond_the_queue_s_bound_is_dropped_before_its_claim(
    bench: Bench, script: Script, memory: SpanMemory
) -> None:
    script.length = 10
    bench.handle(bench.trigger(1, RefreshReason.EARLY))
    assert tree_of(memory.spans, *SHOWN) == ["refresh q INTERNAL refresher.outcome=dropped refresher.why=backpressure"]


def test_one_that_waits_for_five_seconds_is_published_again(bench: Bench, memory: SpanMemory) -> None:
    bench.handle(bench.trigger(1))
    make_older(bench, 1, 6)
    memory.forget()
    bench.handle(bench.trigger(1))
    assert tree_of(memory.spans, *SHOWN)[0] == "refresh q INTERNAL refresher.outcome=published again"
    assert [span.kind for span in memory.spans].count("PRODUCER") == 1


def test_one_that_a_newer_one_has_replaced_leaves_no_span_and_one_that_came_too_late_says_so(
    bench: Bench, memory: SpanMemory
) -> None:
    bench.handle(bench.trigger(1), bench.trigger(1, seen_token=5))
    assert [span.name for span in memory.spans].count("refresh q") == 1
    bench.publisher.close()
    memory.forget()
    assert not bench.publisher.submit(bench.trigger(2))
    assert tree_of(memory.spans, *SHOWN) == ["refresh q INTERNAL refresher.outcome=dropped refresher.why=closed"]
