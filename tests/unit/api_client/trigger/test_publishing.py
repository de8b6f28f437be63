"""Publications: what goes into one message, and the first ones of a connection."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from api_client.protocol.keys import make_key
from api_client.protocol.messages import MAX_MESSAGE_BYTES, RefreshItem, RefreshReason, item_for
from api_client.trigger.backlog import Trigger
from api_client.trigger.batches import HeldBatch
from api_client.trigger.broker import CeleryBroker, monitoring_options
from tests.support.waiting import MAX_WAIT_SECONDS


@pytest.mark.parametrize("character", ["x", "\u6f22", "\U0001f600"], ids=["ASCII", "CJK", "emoji"])
def test_a_full_batch_stays_below_the_maximum_message_size_whatever_its_params_are(character: str) -> None:
    batch = HeldBatch(since=0.0)
    while not batch.is_due(0.0):
        key = make_key("cache", "q", {"number": len(batch.held), "text": character * 1_300}, 1)
        batch.add(Trigger(key, RefreshReason.STALE, claim_number=1_800_000_000_000_000))
    items = [item_for(trigger.key, trigger.claim_number, trigger.reason) for trigger in batch.held]
    body = json.dumps([[msgspec.to_builtins(items)], {}, {}])  # as kombu serialises it
    assert MAX_MESSAGE_BYTES / 10 < len(body) < MAX_MESSAGE_BYTES


def test_a_reader_publishes_to_the_broker_of_its_settings_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://of-the-environment:1/0")
    app = CeleryBroker("redis://of-the-settings:2/3", "cache").app
    for connection in (app.connection(), app.connection_for_write(), app.connection_for_read()):
        assert (connection.hostname, connection.port) == ("of-the-settings", 2)


def test_monitors_show_a_refresh_by_its_query_and_without_its_params() -> None:
    shown = monitoring_options([RefreshItem(query="friends_of", params='{"name":"c4nary"}')] * 2, "cache")
    assert shown["shadow"] == "refresh friends_of"
    assert shown["argsrepr"].startswith("×2: friends_of v1 ")
    assert "c4nary" not in str(shown)


SCRIPT = """
import sys
import threading
import time

from api_client.config.broker import queue_for
from tests.support.waiting import MAX_WAIT_SECONDS

reached, go_on = threading.Event(), threading.Event()

def hold(frame, event, _):
    # In the middle of kombu's own module, which replaces itself by another one at its end.
    if frame.f_code.co_filename.endswith("kombu/__init__.py") and frame.f_code.co_name == "<module>":
        if frame.f_lineno > 40 and not reached.is_set():
            reached.set()
            go_on.wait(MAX_WAIT_SECONDS)
        return hold
    return hold if event == "call" else None

def first():
    sys.settrace(hold)
    queue_for("ns", "redis://127.0.0.1/1", has_waiter=True)

made = []
one = threading.Thread(target=first)
one.start()
assert reached.wait(MAX_WAIT_SECONDS)
two = threading.Thread(target=lambda: made.append(queue_for("ns", "redis://127.0.0.1/1", has_waiter=True)))
two.start()
while two.is_alive() and "_bootstrap" not in sys._current_frames()[two.ident].f_code.co_filename:
    time.sleep(0.001)
go_on.set()
one.join()
two.join()
print(len(made))
"""


def test_two_threads_that_import_kombu_first_both_get_their_queue() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
