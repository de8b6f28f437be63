"""Mutated entries: read, or rejected with the one error; evaluated, explained and expanded within bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from api_client.errors import DecodeError
from api_client.explain import explanation
from api_client.protocol import payload
from api_client.protocol import payload as compression
from api_client.protocol.entry import (
    FIXED_HEADER_BYTES,
    MAX_HEADER_BYTES,
    MAX_TOKEN,
    Header,
    Smoothed,
    UnreadableEntry,
    decode_header,
    encode,
    frozen_token,
)
from api_client.protocol.keys import make_key
from api_client.read.evaluate import ANY, Freshness, evaluate
from tests.fuzz.conftest import TIMEOUT_SECONDS, Feed
from tests.fuzz.mutation import Mutator
from tests.support.payloads import read_payload

pytestmark = [pytest.mark.longer, pytest.mark.timeout(TIMEOUT_SECONDS)]

KEY = make_key("cache", "friends_of", {"person_id": 42}, 1)
NOW_US = 1_790_000_000_000_000
MAX_BYTES = 3_000
VALUE = {"rows": [{"name": f"n{at}", "at": at, "score": at / 3} for at in range(20)], "blob": b"\x00\xff" * 20}
HEADER = Header(
    NOW_US - 5, NOW_US - 9, NOW_US + 60_000_000, b"nonce--1", NOW_US - 7, NOW_US - 6, 60.0, Smoothed(0.5, 0.1),
    Smoothed(0.4, 0.1), 1.5, 7, 1.0,
)  # fmt: skip
EXTENDED = replace(HEADER, bookmarks=("FB:a", "FB:b"), delta_samples=(0.5, 0.25, 1.0), generation=NOW_US)
CONTENT = payload.encode(VALUE)
FRAME = compression.pack(compression.Packed(payload.encode([VALUE] * 4)), 1).content
CORPUS = (
    encode(HEADER, KEY.digest, CONTENT),
    encode(replace(HEADER, flags=1), KEY.digest, payload.encode(None)),
    encode(EXTENDED, KEY.digest, CONTENT),
    encode(replace(EXTENDED, is_compressed=True), KEY.digest, FRAME),
    encode(HEADER, bytes(16), CONTENT),
)
FRESHNESS = (ANY, Freshness(0.0, fresh=True, min_bookmarks=frozenset({"FB:a"})), Freshness(30.0))
TYPES: tuple[Any, ...] = (Any, dict[str, Any], list[dict[str, int]], int)
REASONS = {"garbage", "version", "flags", "digest"}


def read(raw: bytes, mutator: Mutator) -> None:
    assert 0 <= frozen_token(raw) < MAX_TOKEN
    evaluate(raw, KEY.digest, mutator.random.choice(FRESHNESS), now_us=NOW_US, u=mutator.random.random() or 1.0)
    explained = explanation(KEY, (raw[: MAX_HEADER_BYTES + 1], len(raw), 1_000, [], (NOW_US // 10**6, 5)))
    assert str(explained).startswith("friends_of v1: ")
    try:
        header = decode_header(raw, KEY.digest)
    except UnreadableEntry as error:
        refused = error.reason
    else:
        use(raw, header, mutator)
        return
    assert refused in REASONS


def use(raw: bytes, header: Header, mutator: Mutator) -> None:
    assert FIXED_HEADER_BYTES <= header.length <= len(raw)
    again = encode(header, KEY.digest, b"")
    assert encode(decode_header(again, KEY.digest), KEY.digest, b"") == again
    try:
        read_payload(
            raw, mutator.random.choice(TYPES), offset=header.length, is_compressed=header.is_compressed,
            query="friends_of", max_bytes=MAX_BYTES,
        )  # fmt: skip
    except DecodeError:
        return


@pytest.mark.promise("Reading", "Any bytes in an entry are a value, a miss or a DecodeError")
def test_fuzzed_entries_are_read_or_rejected_as_unreadable(fuzz: Callable[[Feed], None]) -> None:
    for raw in CORPUS[:4]:
        assert decode_header(raw, KEY.digest)
    fuzz(lambda mutator: read(mutator.of_bytes(CORPUS), mutator))
