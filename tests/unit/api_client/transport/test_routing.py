"""Routing in a cluster, without servers: which commands go to which node, depending on the replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from redis.crc import key_slot
from redis.exceptions import ClusterDownError, ConnectionError, ReadOnlyError

from api_client.config.redis_url import Address, read_url
from api_client.errors import CacheUnavailable
from api_client.transport.cluster import MAX_ROUNDS, SLOTS, Cluster
from api_client.transport.routing import FindSlots, Pause, Send, Step
from api_client.transport.scripts import drive
from api_client.transport.wire import Command, error_reply

A, B = ("a", 1), ("b", 2)
GET: Command = ("GET", "key")
ASK = error_reply(f"ASK {key_slot(b'key')} b:2")
MOVED = error_reply(f"MOVED {key_slot(b'key')} b:2")
TRY_AGAIN = error_reply("TRYAGAIN Multiple keys request during rehashing of slot")


def unavailable(cause: Exception | None) -> CacheUnavailable:
    error = CacheUnavailable("down")
    error.__cause__ = cause
    return error


class Nodes:
    """Nodes with scripted replies, and a record of what was sent to them."""

    def __init__(self, *replies: Any, slots_found: Address | None = None) -> None:
        self.state = Cluster(read_url("redis+cluster://a:1"), timeout_seconds=1.0)
        self.sent: list[tuple[Address, Sequence[Command]]] = []
        self.searches = self.pauses = 0
        self._replies, self._slots_found = list(replies), slots_found

    def own(self, node: Address) -> None:
        assert self.state.update_slots([[0, SLOTS - 1, [node[0].encode(), node[1]]]], node)

    def do(self, step: Step) -> Any:
        match step:
            case Send(by_node):
                self.sent += by_node.items()
                return {node: self._next(commands) for node, commands in by_node.items()}
            case Pause():
                self.pauses += 1
            case FindSlots():
                self.searches += 1
                if self._slots_found is None:
                    return unavailable(ConnectionError("gone"))
                self.own(self._slots_found)
        return None

    def _next(self, commands: Sequence[Command]) -> list[Any]:
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        return [reply] * len(commands)

    def route(self, *commands: Command) -> list[Any]:
        return drive(self.state.replies(commands), self.do)


def known(*replies: Any, slots_found: Address | None = None) -> Nodes:
    nodes = Nodes(*replies, slots_found=slots_found)
    nodes.own(A)
    return nodes


@pytest.mark.parametrize("breaks", [False, True])
def test_a_search_for_the_slots_begins_elsewhere_than_the_one_that_a_silent_node_has_ended(breaks: bool) -> None:
    cluster = Cluster(read_url("redis+cluster://a:1,b:2"), timeout_seconds=0.0, breaks=breaks)
    asked: list[Address] = []

    def do(step: Step) -> dict[Address, list[Any]]:
        (node,) = step.by_node
        asked.append(node)
        cluster.health_of(node).breaker.failed("silent")
        return {node: [unavailable(ConnectionError("silent"))]}

    for _ in range(2):
        drive(cluster.find_slots().search(), do)
    cluster.update_slots([[0, 99, [b"x", 1]], [100, SLOTS - 1, [b"y", 1]]], A)
    for _ in range(6):
        drive(cluster.find_slots().search(), do)
    assert asked == [A, B, ("x", 1), ("y", 1)] * 2


def test_commands_for_one_node_are_sent_together_and_those_without_a_key_with_them() -> None:
    nodes = known(b"x")
    commands: list[Command] = [GET, ("EVAL", "return 1", 1, "other"), ("WAIT", 1, 10)]
    assert nodes.route(*commands) == [b"x"] * 3
    assert nodes.sent == [(A, commands)]


def test_a_slot_that_has_moved_is_remembered() -> None:
    nodes = known(MOVED, b"x")
    assert nodes.route(GET) == [b"x"]
    assert nodes.route(GET) == [b"x"]
    assert [node for node, _ in nodes.sent] == [A, B, B]


def test_an_ask_redirection_is_followed_once_and_not_remembered() -> None:
    nodes = known(ASK, b"x", b"y")
    assert nodes.route(GET) == [b"x"]
    assert nodes.route(GET) == [b"y"]
    assert nodes.sent == [(A, [GET]), (B, [("ASKING",), GET]), (A, [GET])]


def test_a_step_whose_keys_are_being_migrated_is_retried_after_a_pause() -> None:
    nodes = known(TRY_AGAIN, TRY_AGAIN, b"x")
    assert nodes.route(GET) == [b"x"]
    assert ([node for node, _ in nodes.sent], nodes.pauses) == ([A] * 3, 2)


@pytest.mark.parametrize("failure", [unavailable(ConnectionError("gone")), unavailable(None), ClusterDownError("down")])
def test_after_a_node_s_failure_the_command_goes_to_the_new_owner_of_its_slot(failure: Exception) -> None:
    nodes = known(failure, b"x", slots_found=B)
    assert nodes.route(GET) == [b"x"]
    assert ([node for node, _ in nodes.sent], nodes.searches) == ([A, B], 1)


def test_a_failed_node_that_still_owns_its_slots_fails_its_keys() -> None:
    nodes = known(unavailable(ConnectionError("gone")), slots_found=A)
    assert [type(reply) for reply in nodes.route(GET, ("GET", "other"))] == [CacheUnavailable] * 2
    assert (len(nodes.sent), nodes.searches) == (1, 1)


def test_an_error_reply_is_returned_without_a_search_for_slots() -> None:
    refusal = ReadOnlyError("You can't write against a read only replica.")
    nodes = known(refusal, slots_found=B)
    assert nodes.route(GET) == [refusal]
    assert (len(nodes.sent), nodes.searches) == (1, 0)


def test_a_loop_of_redirections_ends_after_the_maximum_of_rounds() -> None:
    nodes = known(MOVED)
    assert nodes.route(GET) == [MOVED]
    assert len(nodes.sent) == MAX_ROUNDS


def test_unknown_slots_are_searched_for_once_for_all_keys() -> None:
    nodes = Nodes(b"x")
    replies = nodes.route(GET, ("GET", "other"), ("GET", "third"))
    assert [type(reply) for reply in replies] == [CacheUnavailable] * 3
    assert (nodes.sent, nodes.searches) == ([], 1)
    found = Nodes(b"x", slots_found=B)
    assert found.route(GET, ("GET", "other")) == [b"x"] * 2
    assert ([node for node, _ in found.sent], found.searches) == ([B], 1)
