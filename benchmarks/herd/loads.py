"""How one knows what a herd has caused: loads of a number, and whether any is still to come."""

from __future__ import annotations

from typing import Protocol

import redis

from api_client.config.broker import miss_queue, refresh_queue
from benchmarks.herd.queries import marks_of
from benchmarks.places import Place


class Loads(Protocol):
    """Counts loads."""

    def forget(self, number: int) -> None:
        """Count this number's anew."""

    def count(self, number: int) -> int:
        """Return how many loads of this number there were since."""

    def are_due(self, number: int) -> bool:
        """Whether one runs, or is queued."""


class MarkedLoads:
    """The loads of `herd.queries`, by the marks that they leave."""

    def __init__(self, place: Place) -> None:
        self._queues = Queues(place, miss_queue(place.namespace), refresh_queue(place.namespace))
        self._control = redis.Redis.from_url(place.control_url)

    def forget(self, number: int) -> None:
        """Drop the marks."""
        self._control.delete(marks_of(number))

    def count(self, number: int) -> int:
        """Count them."""
        return int(self._control.llen(marks_of(number)))

    def are_due(self, number: int) -> bool:
        """Ask the broker."""
        return self._queues.are_busy()


class Queues:
    """Queues of the broker."""

    def __init__(self, place: Place, *names: str) -> None:
        self._broker, self._names = redis.Redis.from_url(place.broker_url), names

    def are_busy(self) -> bool:
        """Whether a message waits in one of them, or a worker has one in hand."""
        return bool(self._broker.hlen("unacked") or any(self._broker.llen(name) for name in self._names))
