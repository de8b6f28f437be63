"""Listeners are woken by each message, and once for messages from before the subscription."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from api_client.transport import pubsub as module
from api_client.transport.pubsub import Notifications
from api_client.transport.redis_py import connect
from refresher.embedded import RedisServer
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


@pytest.fixture
def notifications(clean_redis: RedisServer) -> Iterator[Notifications]:
    client = connect(clean_redis.url(), timeout_seconds=MAX_WAIT_SECONDS)
    with closing(Notifications(client, confirm_seconds=MAX_WAIT_SECONDS)) as made:
        yield made


def test_the_first_listeners_are_woken_when_the_connection_is_ready(notifications: Notifications) -> None:
    """A failure published while the connection is still being made is seen then, not at the next poll."""
    woken = threading.Event()
    with closing(notifications.listen({"first": woken.set})):
        assert woken.wait(MAX_WAIT_SECONDS)


def test_later_listeners_are_woken_by_their_own_channel_only(
    notifications: Notifications, control: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATE_SECONDS", math.inf)  # however busy the machine is
    first, later = threading.Event(), threading.Event()
    with closing(notifications.listen({"first": first.set})):
        assert first.wait(MAX_WAIT_SECONDS)
        first.clear()
        with closing(notifications.listen({"later": later.set})):
            eventually(lambda: control.pubsub_numsub("later") == [(b"later", 1)], "it is subscribed")
            control.publish("first", "")  # received after the subscription's own reply
            assert first.wait(MAX_WAIT_SECONDS)
            assert not later.is_set()
            control.publish("later", "")
            assert later.wait(MAX_WAIT_SECONDS)


def test_a_connection_that_confirms_no_subscription_is_replaced(clean_redis: RedisServer) -> None:
    first, later = threading.Event(), threading.Event()
    with FaultProxy.before(clean_redis.url()) as proxy:
        client = connect(proxy.url(clean_redis.url()), timeout_seconds=MAX_WAIT_SECONDS)
        with closing(Notifications(client, confirm_seconds=0.5)) as notifications:
            with closing(notifications.listen({"first": first.set})):
                assert first.wait(MAX_WAIT_SECONDS)
                proxy.goes_half_open()
                with closing(notifications.listen({"later": later.set})):
                    assert later.wait(MAX_WAIT_SECONDS)
            assert proxy.accepted >= 2


def test_many_channels_are_subscribed_and_left_by_one_command_each(
    notifications: Notifications, control: redis.Redis
) -> None:
    first, woken = threading.Event(), {f"later-{number}": threading.Event() for number in range(50)}

    def commands() -> dict[str, int]:
        stats = control.info("commandstats")
        return {
            name: stats[f"cmdstat_{name}"]["calls"]
            for name in ("subscribe", "unsubscribe")
            if f"cmdstat_{name}" in stats
        }

    def subscribed(count: int) -> bool:
        return sum(each for _, each in control.pubsub_numsub(*woken)) == count

    with closing(notifications.listen({"first": first.set})):
        assert first.wait(MAX_WAIT_SECONDS)
        before = commands()
        with closing(
            notifications.listen({"first": first.set} | {channel: event.set for channel, event in woken.items()})
        ):
            eventually(lambda: subscribed(50), "all are subscribed")
            control.publish("later-49", "")
            assert woken["later-49"].wait(MAX_WAIT_SECONDS)
        eventually(lambda: subscribed(0), "all are left")
        first.clear()
        control.publish("first", "")
        assert first.wait(MAX_WAIT_SECONDS), "the other listener is still woken"
        after = commands()
    assert {name: after[name] - before.get(name, 0) for name in after} == {"subscribe": 1, "unsubscribe": 1}
