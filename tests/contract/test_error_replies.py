"""Error replies of scripts: the same class on each supported Redis, over either kind of connection."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, TypeAlias

import pytest
import redis
from redis.exceptions import MasterDownError, NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError

from api_client.transport.link import CacheLink
from api_client.transport.redis_py import connect
from api_client.transport.scripts import ask_by_redis_py
from api_client.transport.wire import Command, error_reply, is_transient, is_wrong_node, is_wrong_type
from refresher.embedded import RedisServer, free_port
from tests.support.redis_memory import full
from tests.support.waiting import MAX_WAIT_SECONDS

AskAll: TypeAlias = Callable[[Sequence[Command]], list[Any]]

WRITES = "return redis.call('SET', KEYS[1], 'x')"
PUBLISHES = "return redis.call('PUBLISH', KEYS[1], 'x')"


@contextmanager
def as_it_is(server: RedisServer, client: redis.Redis, key: str) -> Iterator[str]:
    yield server.url()


@contextmanager
def as_a_replica(server: RedisServer, client: redis.Redis, key: str) -> Iterator[str]:
    client.replicaof(server.host, str(free_port()))
    try:
        yield server.url()
    finally:
        client.replicaof("NO", "ONE")


@contextmanager
def as_a_replica_that_serves_nothing_old(server: RedisServer, client: redis.Redis, key: str) -> Iterator[str]:
    client.config_set("replica-serve-stale-data", "no")
    try:
        with as_a_replica(server, client, key) as url:
            yield url
    finally:
        client.config_set("replica-serve-stale-data", "yes")


@contextmanager
def out_of_memory(server: RedisServer, client: redis.Redis, key: str) -> Iterator[str]:
    with full(client):
        yield server.url()


@contextmanager
def as_another_type(server: RedisServer, client: redis.Redis, key: str) -> Iterator[str]:
    client.rpush(key, "x")
    yield server.url()


def as_user(*rules: str) -> Callable[[RedisServer, redis.Redis, str], object]:
    @contextmanager
    def signed_in(server: RedisServer, client: redis.Redis, key: str) -> Iterator[str]:
        name = uuid.uuid4().hex
        client.execute_command("ACL", "SETUSER", name, "on", ">secret", "+@all", "~*", "&*", *rules)
        try:
            yield f"redis://{name}:secret@{server.host}:{server.port}"
        finally:
            client.acl_deluser(name)

    return signed_in


MET = {
    "READONLY": (as_a_replica, WRITES, ReadOnlyError),
    "MASTERDOWN": (as_a_replica_that_serves_nothing_old, WRITES, MasterDownError),
    "OOM": (out_of_memory, WRITES, OutOfMemoryError),
    "WRONGTYPE": (as_another_type, "return redis.call('GET', KEYS[1])", ResponseError),
    "no permission for the command": (as_user("-set"), WRITES, NoPermissionError),
    "no permission for the channel": (as_user("resetchannels"), PUBLISHES, NoPermissionError),
    "no permission for the key": (as_user("resetkeys", "~nothing"), WRITES, NoPermissionError),
    "another error": (as_it_is, "return redis.call('INCR')", ResponseError),
}


def by_link(url: str, stack: ExitStack) -> AskAll:
    return stack.enter_context(closing(CacheLink(url, MAX_WAIT_SECONDS, MAX_WAIT_SECONDS))).execute_all


def by_redis_py(url: str, stack: ExitStack) -> AskAll:
    return partial(ask_by_redis_py, stack.enter_context(connect(url, timeout_seconds=MAX_WAIT_SECONDS)))


@pytest.mark.parametrize("connected", [by_link, by_redis_py])
@pytest.mark.parametrize("what", MET)
def test_each_error_reply_of_a_script_has_its_class(
    redis_server: RedisServer, client: redis.Redis, what: str, connected: Callable[[str, ExitStack], AskAll]
) -> None:
    brought: Any
    brought, script, expected = MET[what]
    key = uuid.uuid4().hex
    command: Command = ("EVAL", script, 1, key)
    with ExitStack() as stack, brought(redis_server, client, key) as url:
        (reply,) = connected(url, stack)([command])
    assert type(reply) is expected
    assert is_wrong_node(reply) == (expected in {ReadOnlyError, MasterDownError})
    assert is_wrong_type(reply) == (what == "WRONGTYPE")
    assert is_transient(reply) == (what == "MASTERDOWN")
    assert "Error running script" not in str(reply)


@pytest.mark.parametrize(
    "message",
    [
        "ERR ACL failure in script: User app has no permissions to run the 'set' command",
        "NOPERM this user has no permissions to run the 'set' command",
    ],
)
def test_a_missing_permission_is_recognised_in_other_versions_messages_too(message: str) -> None:
    assert type(error_reply(message)) is NoPermissionError


def test_a_message_that_quotes_a_script_error_is_not_classified_as_one() -> None:
    error = error_reply("ERR unknown command 'Error running script (call to f_00): -READONLY x'")
    assert type(error) is ResponseError
    assert not is_wrong_node(error)
