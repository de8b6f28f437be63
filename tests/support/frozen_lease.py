"""Lease steps on a Redis whose clock tests move, each in one round trip with a snapshot of its result.

Each snapshot can be restored, so that another step can be taken from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from api_client.transport import scripts as lease_store
from tests.support.lease_world import parse_snapshot, queue_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.client import Pipeline

    from api_client.protocol.lease import Call
    from tests.support.lease_world import ClockedWorld, StepSnapshot

T = TypeVar("T")


class FrozenLease:
    """Runs the steps from any earlier snapshot: one round trip for the restore, the step, and a new snapshot."""

    def __init__(self, world: ClockedWorld) -> None:
        self._client, self._key, self._clock = world.client, world.key, world.clock
        self._goes_to: StepSnapshot | None = None
        self._now: StepSnapshot | None = None

    def go_back_to(self, seen: StepSnapshot, now_us: int) -> None:
        self._clock.now_us, self._goes_to, self._now = now_us, seen, None

    def move_clock(self, seconds: float) -> None:
        if self._goes_to is not None:
            self._trip()
        self._clock.now_us += round(seconds * 1e6)
        self._now = None

    def changed(self) -> None:
        """Discard the snapshot, after a write by another client."""
        self._now = None

    def delete(self, *keys: str) -> None:
        self._trip(lambda pipeline: pipeline.delete(*keys))

    def look(self) -> StepSnapshot:
        if self._now is None:
            self._trip()
        assert self._now is not None
        return self._now

    def run(self, call: Call[T]) -> T:
        """Take the place of a `LeaseStore`."""
        return call.parse(self._trip(lambda pipeline: pipeline.execute_command(*lease_store.by_text(call))))

    def _trip(self, step: Callable[[Pipeline], object] = lambda pipeline: pipeline.ping()) -> Any:
        with self._client.pipeline(transaction=False) as pipeline:
            if self._goes_to is not None:
                self._put_back(pipeline, self._goes_to)
            step(pipeline)
            queue_snapshot(pipeline, self._key)
            replies = pipeline.execute(raise_on_error=False)
        self._now, reply = parse_snapshot(replies[-4:]), replies[-5]
        if isinstance(reply, Exception):
            raise reply
        self._goes_to = None
        return reply

    def _put_back(self, pipeline: Pipeline, seen: StepSnapshot) -> None:
        pipeline.delete(self._key.entry, self._key.record)
        if seen.raw_entry is not None:
            pipeline.set(self._key.entry, seen.raw_entry, px=seen.entry_ms)  # type: ignore[arg-type]
        if seen.record:
            pipeline.hset(self._key.record, mapping=seen.record)  # type: ignore[arg-type]
            pipeline.pexpire(self._key.record, seen.record_ms)
