"""Mutated messages, from their envelope inwards: through the guard, the decoder, and the key of each item."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from kombu.message import Message

from api_client.errors import InvalidQuery
from api_client.protocol import messages
from api_client.protocol.entry import MAX_TOKEN
from api_client.protocol.keys import make_key
from api_client.protocol.messages import MalformedMessage, RefreshItem, RefreshReason
from refresher.worker.celery_fixes.message_guard import validate_message
from tests.fuzz.conftest import TIMEOUT_SECONDS, Feed
from tests.fuzz.mutation import Mutator

pytestmark = [pytest.mark.longer, pytest.mark.timeout(TIMEOUT_SECONDS)]

KEYS = (
    make_key("cache", "friends_of", {"person_id": 42, "name": "Ada", "tags": ["a", {"b": None}]}, 1),
    make_key("cache", "q", None, 65_535),
)
SENT = [messages.item_for(key, 1_790_000_000_000_000, RefreshReason.STALE) for key in KEYS]
SENT.append(RefreshItem(query="q", params='{"n":1.5}', ticket="t", attempt=3, cache_attempt=1))
MESSAGES: list[Any] = [messages.encode([item]) for item in SENT] + [messages.encode(SENT), messages.encode([])]
EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
BODIES = [[[message], {}, EMBED] for message in MESSAGES]
HEADERS: list[Any] = [
    {
        "lang": "py", "task": messages.TASK_NAME, "id": "a", "root_id": "a", "parent_id": None, "group": None,
        "shadow": "refresh q", "eta": "2020-01-01T00:00:00+00:00", "expires": "2999-01-01T00:00:00", "retries": 0,
        "timelimit": [None, 30], "argsrepr": "x", "kwargsrepr": "{}", "origin": "o", "ignore_result": True,
        "stamped_headers": None, "stamps": {},
    },
    {"task": messages.TASK_NAME, "id": "a"},
]  # fmt: skip
RAW_BODIES = [json.dumps(body).encode() for body in BODIES]
TYPES = (
    "application/json",
    "application/json",
    "application/x-python-serialize",
    "application/x-yaml",
    "text/plain",
    None,
)
ENCODINGS = ("utf-8", "utf-8", "binary", "utf-99", "", None, "rot13", "base64")


def body_of(mutator: Mutator) -> bytes:
    """Return a body with bytes changed, or with values changed in its JSON."""
    if mutator.random.random() < 0.4:
        return mutator.of_bytes(RAW_BODIES)
    return json.dumps(mutator.of_json(BODIES)).encode()


def receive(mutator: Mutator) -> None:
    """Process a message as a worker does."""
    chance = mutator.random.random
    odd = chance() < 0.1
    message = Message(
        body=body_of(mutator) if chance() < 0.8 else RAW_BODIES[0],
        content_type=mutator.random.choice(TYPES) if odd else "application/json",
        content_encoding=mutator.random.choice(ENCODINGS) if odd else "utf-8",
        headers={}, accept={"application/json"}, delivery_tag="t",
    )  # fmt: skip
    message.headers = mutator.of_json(HEADERS) if chance() < 0.4 else HEADERS[1]
    refreshes_only = chance() < 0.5
    if validate_message(message, refreshes_only=refreshes_only) is not None:
        return
    if message.headers.get("task") == messages.TASK_NAME:
        decode(message.payload[0][0])


def decode(message: object) -> None:
    """Decode a task's argument and make the keys of its items, as the task does."""
    try:
        items = messages.decode(message)
    except MalformedMessage as error:
        refused = str(error)
    else:
        use(items)
        return
    assert len(refused) < 400


def use(items: list[RefreshItem]) -> None:
    assert messages.decode(messages.encode(items)) == items
    assert len(messages.shown_args(items, "cache")) <= 400 * len(items)
    for item in items:
        assert item.attempt >= 1
        assert 0 <= item.claim_number < MAX_TOKEN
        try:
            key = item.key("cache")
        except InvalidQuery:
            continue
        assert messages.item_for(key, 1, item.reason).key("cache") == key


def test_fuzzed_messages_are_decoded_or_rejected_as_a_worker_would(fuzz: Callable[[Feed], None]) -> None:
    for body in BODIES:
        decode(body[0][0])
    fuzz(receive)


def test_fuzzed_task_arguments_are_decoded_or_malformed(fuzz: Callable[[Feed], None]) -> None:
    fuzz(lambda mutator: decode(mutator.of_json(MESSAGES)))
