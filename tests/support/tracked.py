"""An in-process tier with its link to a real Redis, as a reader has them, and helpers of tests."""

from __future__ import annotations

import logging
from typing import Any, Self

import pytest
import redis

from api_client.local import tracking
from api_client.local.entry import LocalEntry
from api_client.local.tier import Fill, LocalTier
from api_client.local.tracking import TrackingLink
from tests.support.lease_world import a_header
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

NAMESPACE = "cache"
HEADER = a_header(1)


def entry_key(name: str, namespace: str = NAMESPACE) -> str:
    return f"{namespace}:e1:{{q:1:{name}}}"


class Tracked:
    """A tier and its link. The link connects to ``url``, the test itself to ``control_url``.

    ``pauses`` counts the pauses between two attempts to connect, unless a test has a jitter of its own.
    """

    def __init__(
        self, url: str, control_url: str = "", *, timeout_seconds: float = MAX_WAIT_SECONDS, **link: Any
    ) -> None:
        self.control = redis.Redis.from_url(control_url or url)
        self.pauses = 0
        self.tier = LocalTier(max_entries=200_000, max_bytes=10**9, max_age_seconds=600.0)
        self.link = TrackingLink(
            url, timeout_seconds=timeout_seconds, tier=self.tier, namespace=NAMESPACE,
            **{"jitter": self._count_pause, **link},
        )  # fmt: skip

    def _count_pause(self) -> float:
        self.pauses += 1
        return 0.0

    def __enter__(self) -> Self:
        self.link.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()
        self.control.close()

    def up(self) -> Self:
        """Wait until the tier is on."""
        eventually(lambda: not self.tier.is_bypassed, "the tier is on")
        return self

    def begin(self, key: str) -> Fill:
        fill = self.tier.begin(key)
        assert fill is not None
        return fill

    def keep(self, *keys: str, value: str = "old") -> None:
        """Write the keys, and fill them into the tier as a reader does."""
        self.control.mset(dict.fromkeys(keys, value))
        self.wait_until_received()
        for key in keys:
            fill = self.begin(key)
            raw = self.control.get(key)
            assert isinstance(raw, bytes)
            assert self.tier.fill(fill, LocalEntry(raw, HEADER, 0))

    def works(self, key: str) -> None:
        """Check that the tier is on, keeps entries, and receives invalidations."""
        self.up().keep(key)
        self.control.set(key, "new")
        eventually(lambda: key not in self.tier.entries, f"{key} is dropped")

    def wait_until_received(self) -> None:
        """Wait until the link has handled all earlier writes: messages come in order."""
        drop_marker(self.tier, self.control, entry_key("marker"))

    def tracking_ids(self) -> set[int]:
        """Return the server's ids of the tracking connections."""
        return {int(one["id"]) for one in self.control.client_list() if "B" in one["flags"]}


def drop_marker(tier: LocalTier, control: redis.Redis, entry_key: str) -> None:
    """Put an entry into the tier, write its key, and wait until the tier drops it: messages come in order."""
    fill = tier.begin(entry_key)
    assert fill is not None
    assert tier.fill(fill, LocalEntry(b"", HEADER, 0))
    control.set(entry_key, "now")
    eventually(lambda: entry_key not in tier.entries, "the marker is dropped")


def losses(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the link's warnings so far: one per outage."""
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [record.getMessage() for record in warnings if record.name == tracking.__name__]
