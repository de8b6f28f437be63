"""Messages that a worker sends again: they keep the trace of the first one."""

from __future__ import annotations

import msgspec
import pytest

from api_client.protocol import messages
from api_client.protocol.lease import CommitStatus
from api_client.protocol.messages import RefreshItem
from tests.support.fake_refresher import ITEM, Worker, failing

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
