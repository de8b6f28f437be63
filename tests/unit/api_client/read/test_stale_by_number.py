"""An invalidated value is stale by its numbers, whatever a reader's clock says."""

from __future__ import annotations

import pytest

from api_client.protocol.entry import Header, Smoothed, encode
from api_client.protocol.messages import RefreshReason
from api_client.read.evaluate import ANY, evaluate

DIGEST = bytes(16)
NOW_US = 1_000_000_000


def header(*, generation: int, soft_expiry_us: int) -> Header:
    return Header(
        token=500, generation=generation, soft_expiry_us=soft_expiry_us, nonce=bytes(8), read_started_us=1,
        fetched_at_us=2, ttl_seconds=60, delta=Smoothed(0, 0), run=Smoothed(0, 0), beta=0, degree=0, sigma=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("generation", "soft_expiry_us", "expected"),
    [
        (0, NOW_US + 1, None),
        (499, NOW_US + 1, None),
        (0, NOW_US, RefreshReason.STALE),
        (501, NOW_US, RefreshReason.INVALIDATED),
        # The reader's clock is behind Redis', which stamped the invalidation.
        (501, NOW_US + 5_000, RefreshReason.INVALIDATED),
    ],
)
def test_a_refresh_is_asked_for_once_it_is_stale(
    generation: int, soft_expiry_us: int, expected: RefreshReason | None
) -> None:
    entry = header(generation=generation, soft_expiry_us=soft_expiry_us)
    verdict = evaluate(encode(entry, DIGEST, b"\xc0"), DIGEST, ANY, now_us=NOW_US, u=0.5)
    assert verdict.satisfies
    assert verdict.trigger is expected
    assert entry.is_stale(NOW_US) is (expected is not None)
    assert (entry.left_seconds(NOW_US) <= 0) is entry.is_stale(NOW_US)
