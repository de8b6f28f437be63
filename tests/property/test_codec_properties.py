"""Codecs: every value survives a round trip. Inputs that no encoder has written are in `tests/fuzz`."""

from __future__ import annotations

import json
from typing import Any

import kombu.utils.json
import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from msgspec.structs import replace

from api_client.errors import InvalidQuery
from api_client.protocol import messages, payload
from api_client.protocol import payload as compression
from api_client.protocol.arrays import ELEMENT_TYPES
from api_client.protocol.entry import (
    MAX_DEGREE,
    MAX_DEVIATION_SECONDS,
    MAX_FETCH_US,
    MAX_TOKEN,
    Flag,
    Header,
    Smoothed,
    decode_header,
    encode,
    frozen_token,
)
from api_client.protocol.keys import make_key
from api_client.protocol.messages import RefreshItem, RefreshReason
from refresher.graph import values
from tests.support.payloads import read_payload

DIGEST = bytes(range(16))
float32 = st.floats(0, 2.0**127, width=32)
tokens = st.integers(0, MAX_TOKEN - 1)
microseconds = st.integers(0, 2**64 - 1)
smoothed = st.builds(Smoothed, float32, st.floats(0, MAX_DEVIATION_SECONDS, width=16))
bookmark = st.text(st.characters(codec="ascii", exclude_categories=("C",)), min_size=1, max_size=100)


def a_header(fetch_us: int, **fields: Any) -> Header:
    return Header(fetched_at_us=fields["read_started_us"] + fetch_us, **fields)


headers = st.builds(
    a_header,
    token=tokens,
    generation=tokens,
    soft_expiry_us=microseconds,
    nonce=st.binary(min_size=8, max_size=8),
    read_started_us=microseconds,
    fetch_us=st.integers(0, MAX_FETCH_US),
    ttl_seconds=float32,
    delta=smoothed,
    run=smoothed,
    beta=float32,
    degree=st.integers(0, MAX_DEGREE),
    sigma=float32,
    draw_digits=st.integers(0, 15),
    flags=st.sampled_from([0, int(Flag.HANDOFF)]),
    bookmarks=st.lists(bookmark, max_size=5).map(tuple),
    delta_samples=st.lists(float32, max_size=64).map(tuple),
    is_compressed=st.booleans(),
    has_arrays=st.booleans(),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(headers, st.binary(max_size=50))
def test_every_field_of_an_entry_survives_a_round_trip(header: Header, content: bytes) -> None:
    raw = encode(header, DIGEST, content)
    decoded = decode_header(raw, DIGEST)
    assert decoded == replace(header, length=decoded.length)
    assert raw[decoded.length :] == content
    assert frozen_token(raw) == header.token


@given(st.binary(max_size=50), st.lists(json_values, min_size=1, max_size=2), st.integers(1, 200))
def test_a_packed_payload_survives_a_round_trip(header: bytes, rows: list[object], copies: int) -> None:
    try:
        packed = compression.pack(compression.Packed(payload.encode(rows * copies)), 1)
    except OverflowError:
        assume(False)
    raw = header + packed.content
    decoded = read_payload(raw, offset=len(header), is_compressed=packed.is_compressed, query="q", max_bytes=10**7)
    assert decoded == rows * copies


@given(json_values)
def test_a_json_like_value_survives_a_round_trip_through_a_payload(value: object) -> None:
    try:
        encoded = payload.encode(value)
    except OverflowError:
        assume(False)  # an integer beyond 64 bits; a worker refuses it
    assert read_payload(encoded, query="q", max_bytes=10**6) == value


@given(st.data())
def test_an_array_survives_a_round_trip_as_lists_and_as_an_array(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(ELEMENT_TYPES)))
    shape = data.draw(array_shapes(max_dims=4, max_side=5))
    made = data.draw(arrays(dtype, shape))
    packed = values.encode({"deep": [made]}, query="q", max_bytes=10**6)
    found = payload.decode(packed.content, dict[str, list[np.ndarray]], "q")["deep"][0]
    assert (found.dtype, found.shape, found.tobytes()) == (dtype, shape, made.tobytes())
    listed = payload.decode(packed.content, Any, "q")["deep"][0]
    assert np.array_equal(np.array(listed, dtype), made, equal_nan=dtype.kind == "f")
    again = values.encode(listed, query="q", max_bytes=10**6)
    assert payload.decode(again.content, Any, "q") == listed or dtype.kind == "f"


fields = st.none() | st.integers(-5, 5) | st.text(max_size=3) | st.floats(allow_nan=False) | st.dates()
rows = st.lists(st.dictionaries(st.sampled_from(["a", "b", 1]), fields, max_size=3), max_size=8)


@given(rows, st.integers(1, 3))
def test_rows_that_are_encoded_together_are_those_that_are_encoded_alone(found: list[Any], copies: int) -> None:
    together = values.encode(found * copies, query="q", max_bytes=10**6).content
    alone = [values.encode({"row": row}, query="q", max_bytes=10**6).content for row in found * copies]
    assert payload.decode(together, Any, "q") == [payload.decode(one, Any, "q")["row"] for one in alone]
    assert len(together) <= sum(map(len, alone)) + 5
    assert values.encode(found * copies, query="q", max_bytes=len(together)).content == together


items = st.builds(
    RefreshItem,
    query=st.text(),
    version=st.integers(-(2**63), 2**63),
    params=st.text() | st.dictionaries(st.text(), json_values, max_size=3).map(json.dumps),
    claim_number=tokens,
    reason=st.sampled_from(RefreshReason),
    ticket=st.text(max_size=64),
    attempt=st.integers(1, 2**31),
    cache_attempt=st.integers(0, 2**31),
)


@given(st.lists(items, max_size=3))
def test_a_message_survives_a_round_trip(sent: list[RefreshItem]) -> None:
    assert messages.decode(messages.encode(sent)) == sent


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), json_values, max_size=3))
def test_any_params_reach_the_worker_unchanged_through_the_broker_s_json(params: dict[str, Any]) -> None:
    try:
        key = make_key("ns", "q", params, 1)
    except InvalidQuery:
        assume(False)
    message = messages.encode([messages.item_for(key, 1, RefreshReason.STALE)])
    (item,) = messages.decode(kombu.utils.json.loads(kombu.utils.json.dumps(message)))
    assert (item.key("ns"), item.decoded_params) == (key, key.params)
