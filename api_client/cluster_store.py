"""Runs steps of lease records for the publisher on the nodes of a cluster, behind their breakers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from redis.exceptions import ResponseError

from api_client.errors import CacheUnavailable
from api_client.lease import Call

if TYPE_CHECKING:
    from api_client.cluster_link import ClusterLink

T = TypeVar("T")


class ClusterStore:
    """Runs steps as `LeaseStore` does, on the nodes of a link: where one is down, its breaker answers for it."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    def run(self, call: Call[T]) -> T:
        """Run one step.

        Raises:
            CacheUnavailable.
        """
        return self._link.run(call, None)

    def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Run steps, those of one node in one round trip.

        Raises:
            CacheUnavailable: all have failed.
            redis.exceptions.ResponseError: some have: run alone, each has a result of its own.
        """
        replies = self._link.run_each(calls, None)
        done = [reply for reply in replies if not isinstance(reply, CacheUnavailable)]
        for reply in replies:
            if isinstance(reply, CacheUnavailable):
                raise ResponseError("some of the steps have failed") if done else reply
        return done
