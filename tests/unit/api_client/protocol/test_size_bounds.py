"""Size limits: what exceeds them is refused before it is decoded or stored."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import kombu.utils.json
import pytest
from kombu.message import Message

from api_client.errors import DecodeError, InvalidQuery
from api_client.protocol import messages, payload
from api_client.protocol import payload as compression
from api_client.protocol.entry import MAX_HEADER_BYTES, Header, Smoothed, encode
from api_client.protocol.keys import make_key
from api_client.protocol.messages import MAX_ITEMS, MAX_MESSAGE_BYTES, MalformedMessage, RefreshItem, RefreshReason
from api_client.protocol.params import MAX_DEPTH, MAX_PARAMS_BYTES
from refresher.worker.celery_fixes.message_guard import DropReason, validate_message
from tests.support.payloads import read_payload

EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def received(body: bytes) -> Message:
    message = Message(body=body, content_type="application/json", content_encoding="utf-8", accept={"application/json"})
    message.headers = {"task": messages.TASK_NAME, "id": "x"}
    return message


class Undecodable:
    """A message without a method that decodes its content."""

    content_type, content_encoding = "application/json", "utf-8"
    headers: ClassVar[dict[str, str]] = {"task": messages.TASK_NAME, "id": "x"}
    body = b"[" + b" " * MAX_MESSAGE_BYTES


def test_a_message_beyond_the_bound_is_dropped_before_it_is_decoded() -> None:
    for refreshes_only in (True, False):
        fault = validate_message(Undecodable(), refreshes_only=refreshes_only)
        assert fault is not None
        assert fault.reason is DropReason.TOO_LARGE


@pytest.mark.parametrize("character", ["\x01", "é", '"', "x", "\U0001f600"])
def test_a_message_with_the_largest_params_is_well_within_the_bound(character: str) -> None:
    params = {"text": character}
    while True:
        try:
            key = make_key("cache", "q" * 100, params, 65_535)
        except InvalidQuery:
            break
        largest, params = key, {"text": params["text"] * 2}
    body = [[messages.encode([messages.item_for(largest, 2**53 - 1, RefreshReason.INVALIDATED)])], {}, EMBED]
    written = kombu.utils.json.dumps(body).encode()
    assert len(written) * 4 < MAX_MESSAGE_BYTES
    assert validate_message(received(written), refreshes_only=True) is None


def test_a_message_has_a_bounded_number_of_items_and_each_bounded_fields() -> None:
    item = {"query": "q"}
    assert len(messages.decode({"v": 1, "items": [item] * MAX_ITEMS})) == MAX_ITEMS
    with pytest.raises(MalformedMessage, match="1001 items"):
        messages.decode({"v": 1, "items": [item] * (MAX_ITEMS + 1)})
    with pytest.raises(MalformedMessage, match=r"ticket"):
        messages.decode({"v": 1, "items": [item | {"ticket": "x" * 65}]})


@pytest.mark.parametrize(
    "params",
    [
        "[" * 8_000,
        '{"a":' * 3_000,
        json.dumps({"a": "x" * MAX_PARAMS_BYTES}),
        '{"a":' + "9" * 5_000 + "}",
        '{"a":1e999}',
    ],
    ids=["deep arrays", "deep objects", "long", "digits", "infinite"],
)
def test_params_beyond_the_bounds_are_refused(params: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        RefreshItem(query="q", params=params).key("cache")
    assert len(str(caught.value)) < 300


def test_params_are_nested_to_the_bound_and_no_deeper() -> None:
    nested: Any = 1
    for _ in range(MAX_DEPTH - 1):
        nested = [nested]
    assert make_key("cache", "q", {"a": nested}, 1)
    with pytest.raises(InvalidQuery, match="nested deeper than 16"):
        make_key("cache", "q", {"a": [[nested]]}, 1)


def test_invalid_unicode_in_a_message_drops_only_its_own_item() -> None:
    message = json.loads('{"v": 1, "items": [{"query": "q", "version": "\\ud800"}, {"query": "q"}]}')
    assert messages.decode(message) == [RefreshItem(query="q")]
    with pytest.raises(MalformedMessage, match=r"not Unicode - at `\$\[0\]`"):
        messages.decode({"v": 1, "items": message["items"][:1]})


@pytest.mark.parametrize("item", [RefreshItem(query="x" * 5_000), RefreshItem(query="q", version=10**4_000)])
def test_an_item_that_can_have_no_key_is_shown_to_monitors_as_a_question_mark(item: RefreshItem) -> None:
    assert messages.shown_args([item], "cache") == "? manual"


def test_the_extension_fields_of_an_entry_are_bounded() -> None:
    header = Header(1, 0, 2, b"nonce--1", 1, 1, 60.0, Smoothed(1, 1), Smoothed(1, 1), 1.0, 1, 1.0)
    from msgspec.structs import replace

    with pytest.raises(ValueError, match="extension field"):
        encode(replace(header, bookmarks=("x" * (MAX_HEADER_BYTES + 1),)), bytes(16), b"")


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_payload_whose_stored_or_expanded_size_is_over_the_limit_is_refused(is_compressed: bool) -> None:
    content = payload.encode("x" * 100_000)
    packed = compression.pack(compression.Packed(content), 1).content if is_compressed else content
    for max_bytes in (len(packed) - 1, len(content) - 1):
        with pytest.raises(DecodeError, match="CACHE_MAX_VALUE_BYTES"):
            read_payload(packed, is_compressed=is_compressed, query="q", max_bytes=max_bytes)
