"""The size of a message of many refreshes."""

from __future__ import annotations

import json

import msgspec
import pytest

from api_client.protocol.keys import make_key
from api_client.protocol.messages import MAX_MESSAGE_BYTES, RefreshReason, item_for
from api_client.trigger.backlog import Trigger
from api_client.trigger.batches import HeldBatch


@pytest.mark.parametrize("character", ["x", "\u6f22", "\U0001f600"], ids=["ASCII", "CJK", "emoji"])
def test_a_full_batch_stays_below_the_maximum_message_size_whatever_its_params_are(character: str) -> None:
    batch = HeldBatch(since=0.0)
    while not batch.is_due(0.0):
        key = make_key("cache", "q", {"number": len(batch.held), "text": character * 1_300}, 1)
        batch.add(Trigger(key, RefreshReason.STALE, claim_number=1_800_000_000_000_000))
    items = [item_for(trigger.key, trigger.claim_number, trigger.reason) for trigger in batch.held]
    body = json.dumps([[msgspec.to_builtins(items)], {}, {}])  # as kombu serialises it
    assert MAX_MESSAGE_BYTES / 10 < len(body) < MAX_MESSAGE_BYTES
