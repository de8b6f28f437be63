"""Codecs: every value survives a round trip, and any other input raises only the codec's own error."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from typing import Any

import kombu.utils.json
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from api_client.config.settings import ReaderSettings
from api_client.errors import ConfigurationError, DecodeError, InvalidQuery
from api_client.protocol import messages, payload
from api_client.protocol import payload as compression
from api_client.protocol.entry import (
    FIXED_HEADER_BYTES,
    MAX_DEGREE,
    MAX_DEVIATION_SECONDS,
    MAX_FETCH_US,
    MAX_TOKEN,
    Flag,
    Header,
    Smoothed,
    UnreadableEntry,
    decode_header,
    encode,
    frozen_token,
)
from api_client.protocol.keys import make_key
from api_client.protocol.messages import MalformedMessage, RefreshItem, RefreshReason
from api_client.read.evaluate import ANY, Freshness, evaluate
from refresher.settings import WorkerSettings
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
)
RAW = encode(
    Header(7, 8, 9, b"nonce--1", 10, 11, 60.0, Smoothed(1, 1), Smoothed(1, 1), 1.0, 1, 1.0, bookmarks=("b",)),
    DIGEST,
    b"x",
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


def reads(raw: bytes) -> Header | None:
    """Decode and evaluate: the only possible error is UnreadableEntry, and the token can always be read."""
    assert 0 <= frozen_token(raw) < MAX_TOKEN
    for freshness in (ANY, Freshness(0.0, fresh=True, min_bookmarks=frozenset("b"))):
        evaluate(raw, DIGEST, freshness, now_us=2**50, u=0.5)
    try:
        return decode_header(raw, DIGEST)
    except UnreadableEntry as error:
        reason = error.reason
    assert reason in {"garbage", "version", "flags", "digest"}
    return None


@given(st.binary(max_size=300))
@example(b"\xc7X")
def test_arbitrary_bytes_raise_nothing_but_unreadable_entry(raw: bytes) -> None:
    reads(raw)


@given(
    st.lists(st.tuples(st.integers(0, len(RAW) - 1), st.integers(0, 255)), min_size=1, max_size=8), st.integers(0, 200)
)
def test_an_entry_with_any_bytes_changed_or_cut_off_is_read_or_unreadable(
    changes: list[tuple[int, int]], kept: int
) -> None:
    mutated = bytearray(RAW)
    for position, byte in changes:
        mutated[position] = byte
    header = reads(bytes(mutated[:kept]))
    assert header is None or kept >= header.length >= FIXED_HEADER_BYTES


@given(st.binary(min_size=80, max_size=80), st.binary(max_size=40))
def test_any_numbers_in_a_complete_header_are_evaluated_without_an_error(numbers: bytes, extensions: bytes) -> None:
    length = struct.pack(">H", FIXED_HEADER_BYTES + len(extensions))
    reads(RAW[:6] + length + RAW[8:20] + numbers + extensions + b"payload")


@given(st.binary(max_size=200), st.sampled_from([Any, int, str, list[int], dict[str, float], tuple[int, ...] | None]))
def test_an_arbitrary_payload_is_a_value_or_a_decode_error(content: bytes, type_: Any) -> None:
    with suppress(DecodeError):
        read_payload(content, type_, query="q", max_bytes=150)


FRAME = compression.pack(payload.encode([{"name": "Ada"}] * 40), 1).content


@given(
    st.lists(st.tuples(st.integers(0, len(FRAME) - 1), st.integers(0, 255)), max_size=8), st.integers(0, len(FRAME) + 1)
)
def test_a_frame_with_any_bytes_changed_or_cut_off_is_a_value_or_a_decode_error(
    changes: list[tuple[int, int]], kept: int
) -> None:
    mutated = bytearray(FRAME + b"x")
    for position, byte in changes:
        mutated[position] = byte
    with suppress(DecodeError):
        read_payload(bytes(mutated[:kept]), is_compressed=True, query="q", max_bytes=10_000)


@given(st.binary(max_size=50), st.lists(json_values, min_size=1, max_size=2), st.integers(1, 200))
def test_a_packed_payload_survives_a_round_trip(header: bytes, values: list[object], copies: int) -> None:
    try:
        packed = compression.pack(payload.encode(values * copies), 1)
    except OverflowError:
        assume(False)
    raw = header + packed.content
    decoded = read_payload(raw, offset=len(header), is_compressed=packed.is_compressed, query="q", max_bytes=10**7)
    assert decoded == values * copies


@given(json_values)
def test_a_json_like_value_survives_a_round_trip_through_a_payload(value: object) -> None:
    try:
        encoded = payload.encode(value)
    except OverflowError:
        assume(False)  # an integer beyond 64 bits; a worker refuses it
    assert read_payload(encoded, query="q", max_bytes=10**6) == value


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


fields = st.sampled_from(
    ["query", "version", "params", "claim_number", "reason", "ticket", "attempt", "cache_attempt", "other"]
)
almost = st.fixed_dictionaries(
    {
        "v": st.sampled_from([1, 1, 1, 2]) | json_values,
        "items": st.lists(st.dictionaries(fields, json_values)) | json_values,
    }
)


@given(json_values | almost)
def test_any_message_is_decoded_or_malformed(message: object) -> None:
    try:
        decoded = messages.decode(message)
    except MalformedMessage:
        return
    assert all(item.attempt >= 1 and 0 <= item.claim_number < MAX_TOKEN for item in decoded)


@given(st.text() | json_values.map(json.dumps))
def test_any_text_of_params_is_decoded_or_refused(text: str) -> None:
    try:
        key = RefreshItem(query="q", params=text).key("ns")
    except InvalidQuery:
        return
    assert RefreshItem(query="q", params=key.canonical_params).key("ns") == key


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), json_values, max_size=3))
def test_any_params_reach_the_worker_unchanged_through_the_broker_s_json(params: dict[str, Any]) -> None:
    try:
        key = make_key("ns", "q", params, 1)
    except InvalidQuery:
        assume(False)
    message = messages.encode([messages.item_for(key, 1, RefreshReason.STALE)])
    (item,) = messages.decode(kombu.utils.json.loads(kombu.utils.json.dumps(message)))
    assert (item.key("ns"), item.decoded_params) == (key, key.params)


VARIABLES = sorted(
    {
        "CACHE_REDIS_URL", "CACHE_NAMESPACE", "CACHE_BROKER_URL", "NEO4J_URI", "CACHE_XFETCH_ENABLED",
        "CACHE_XFETCH_BETA", "CACHE_XFETCH_MIN_TTL", "CACHE_XFETCH_WORKERS", "CACHE_XFETCH_QUEUE_SIZE",
        "CACHE_XFETCH_TIMEOUT", "CACHE_XFETCH_RETRY_MAX", "CACHE_XFETCH_RETRY_BACKOFF", "CACHE_XFETCH_RND_PRECISION",
        "TSPR_REFRESH_MODE", "STAMPEDE_LOCK_TIMEOUT_MS", "STAMPEDE_JITTER_MIN_MS", "STAMPEDE_JITTER_MAX_MS",
        "STAMPEDE_WAIT_POLL_MS", "STAMPEDE_WAIT_TIMEOUT_MS", "CACHE_QUEUE_TTL", "CACHE_COOLING",
        "CACHE_RECORD_RETENTION", "CACHE_REDIS_TIMEOUT", "CACHE_REDIS_REPLY_TIMEOUT", "CACHE_MAX_VALUE_BYTES",
        "CACHE_COMPRESS_MIN_BYTES",
    }
)  # fmt: skip
written = st.text() | st.integers().map(str) | st.floats().map(str) | st.from_regex(r"\d+(ms|s|m|h)", fullmatch=True)
url_like = st.from_regex(r"(redis|bolt|amqp)://[a-z]*:SECRET[@/?#:;]{0,3}[a-z@:/?=;]*@[a-z]*", fullmatch=True)


@given(st.dictionaries(st.sampled_from(VARIABLES), written, max_size=3))
def test_any_text_in_the_environment_is_a_setting_or_a_configuration_error(environ: dict[str, str]) -> None:
    for who in (ReaderSettings, WorkerSettings):
        try:
            repr(who.from_env(environ))
            continue
        except ConfigurationError as error:
            refused = error
        # Of two that contradict each other the one that was not set may be named.
        assert refused.variable in environ or "JITTER" in refused.variable
        assert refused.allowed in str(refused)


@given(st.sampled_from(["CACHE_REDIS_URL", "CACHE_BROKER_URL", "NEO4J_URI"]), url_like)
def test_no_spelling_of_a_url_shows_its_password(name: str, url: str) -> None:
    try:
        shown = repr(WorkerSettings.from_env({name: url}))
    except ConfigurationError as error:
        shown = str(error)
    assert "SECRET" not in shown


def test_the_decoders_accept_the_sample_entry_and_reject_damaged_ones() -> None:
    assert reads(RAW) is not None
    assert reads(RAW[:3] + b"\x02" + RAW[4:]) is None
    with pytest.raises(MalformedMessage):
        messages.decode({"v": 1, "items": [{}]})
