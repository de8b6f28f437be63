"""Size limits: what exceeds them is refused before it is decoded or stored."""

from __future__ import annotations

import json
from typing import ClassVar

import kombu.utils.json
import pytest
from kombu.message import Message

from api_client.errors import InvalidQuery
from api_client.protocol import messages
from api_client.protocol.keys import make_key
from api_client.protocol.messages import MAX_ITEMS, MAX_MESSAGE_BYTES, MalformedMessage, RefreshItem, RefreshReason
from api_client.protocol.params import MAX_PARAMS_BYTES
from refresher.flow.ports import DropReason
from refresher.worker.celery_fixes.message_guard import validate_message

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


def test_invalid_unicode_in_a_message_drops_only_its_own_item() -> None:
    message = json.loads('{"v": 1, "items": [{"query": "q", "version": "\\ud800"}, {"query": "q"}]}')
    assert messages.decode(message) == [RefreshItem(query="q")]
    with pytest.raises(MalformedMessage, match=r"not Unicode - at `\$\[0\]`"):
        messages.decode({"v": 1, "items": message["items"][:1]})
