"""Spans of triggers: each records its outcome; a trigger that another one replaces has no span."""

from __future__ import annotations

import pytest

from api_client import RefreshReason
from api_client.observe.otel_spans import OTelReaderSpans
from tests.integration.test_publisher import make_older
from tests.support.event_recorder import EventRecorder
from tests.support.publisher_harness import PublisherHarness, ScriptedBroker
from tests.support.span_recorder import SpanRecorder, tree_of

SHOWN = ("refresher.outcome", "refresher.why", "error.type")


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> SpanRecorder:
    memory = SpanRecorder()
    monkeypatch.setattr(EventRecorder, "spans", OTelReaderSpans(memory.tracer), raising=False)
    return memory


@pytest.mark.usefixtures("republish_seconds")
def test_a_trigger_of_a_claimed_key_is_recorded_as_deduplicated(bench: PublisherHarness, memory: SpanRecorder) -> None:
    bench.handle(bench.trigger(1))
    memory.forget()
    bench.handle(bench.trigger(1))
    assert tree_of(memory.spans, *SHOWN) == [
        "refresh q INTERNAL refresher.outcome=deduplicated refresher.why=queued",
        "  claim CLIENT",
    ]


def test_a_trigger_that_can_t_be_published_is_recorded_as_failed_with_its_message(
    bench: PublisherHarness, script: ScriptedBroker, memory: SpanRecorder
) -> None:
    script.error = lambda _: OSError("c4nary")
    bench.handle(bench.trigger(1))
    assert tree_of(memory.spans, *SHOWN) == [
        "refresh q INTERNAL refresher.outcome=failed refresher.why=OSError error.type=OSError",
        "  claim CLIENT",
        "  send cache.refresh PRODUCER error.type=OSError",
    ]
    assert not any(any(span.texts) for span in memory.spans)


def test_a_trigger_beyond_the_queue_s_bound_is_recorded_as_dropped_before_its_claim(
    bench: PublisherHarness, script: ScriptedBroker, memory: SpanRecorder
) -> None:
    script.length = 10
    bench.handle(bench.trigger(1, RefreshReason.EARLY))
    assert tree_of(memory.spans, *SHOWN) == ["refresh q INTERNAL refresher.outcome=dropped refresher.why=backpressure"]


def test_a_trigger_queued_for_over_five_seconds_is_recorded_as_published_again(
    bench: PublisherHarness, memory: SpanRecorder
) -> None:
    bench.handle(bench.trigger(1))
    make_older(bench, 1, 6)
    memory.forget()
    bench.handle(bench.trigger(1))
    assert tree_of(memory.spans, *SHOWN)[0] == "refresh q INTERNAL refresher.outcome=published again"
    assert [span.kind for span in memory.spans].count("PRODUCER") == 1


def test_a_replaced_trigger_has_no_span_and_a_late_one_is_dropped_as_closed(
    bench: PublisherHarness, memory: SpanRecorder
) -> None:
    bench.handle(bench.trigger(1), bench.trigger(1, seen_token=5))
    assert [span.name for span in memory.spans].count("refresh q") == 1
    bench.publisher.close()
    memory.forget()
    assert not bench.publisher.submit(bench.trigger(2))
    assert tree_of(memory.spans, *SHOWN) == ["refresh q INTERNAL refresher.outcome=dropped refresher.why=closed"]
