"""Several steps of lease records at once, each with an end of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from redis.exceptions import ResponseError

from api_client.lease import Call

T = TypeVar("T")


class Steps(Protocol):
    """Runs steps of lease records."""

    def run(self, call: Call[T], /) -> T: ...  # noqa: D102

    def run_all(self, calls: Sequence[Call[T]], /) -> list[T]:
        """Run steps in one round trip; raises a ResponseError when one of them met one."""


def run_each(store: Steps, calls: Sequence[Call[T]]) -> list[T | Exception]:
    """Run steps in one round trip; one that Redis refuses ends alone."""
    replies: list[T | Exception] = []
    try:
        replies.extend(store.run_all(calls) if calls else ())
    except ResponseError:
        replies.extend(_alone(store, calls))
    except Exception as error:  # noqa: BLE001 - told to whoever asked for each of them
        replies.extend([error] * len(calls))
    return replies


def _alone(store: Steps, calls: Sequence[Call[T]]) -> Iterator[T | Exception]:
    """Run steps one by one. Some may have been done already: each may be repeated."""
    for call in calls:
        try:
            yield store.run(call)
        except Exception as error:  # noqa: BLE001 - told to whoever asked for it
            yield error
