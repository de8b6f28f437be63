"""A node that is no longer the master: its connection is dropped, since a new one may reach the master."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from api_client import CacheUnavailable, ReaderEvents, ReaderSettings
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from api_client.transport.wire import is_wrong_node, reply_reader
from refresher.embedded import RedisServer, free_port
from tests.support.any_reader import KINDS, AnyReader
from tests.support.fake_worker import WorkedKey
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import MAX_WAIT_SECONDS


@pytest.fixture(scope="module")
def demoted() -> Iterator[RedisServer]:
    """A replica that has lost its master, and serves no stale data."""
    with RedisServer.start(extra_config={"replica-serve-stale-data": "no"}) as server:
        with redis.Redis.from_url(server.url()) as client:
            client.replicaof(server.host, str(free_port()))
        yield server


@pytest.fixture(scope="module")
def master(demoted: RedisServer) -> Iterator[RedisServer]:
    """Another server under the same password, with a value."""
    with (
        RedisServer.start(password=demoted.password) as server,
        redis.Redis.from_url(server.url()) as control,
    ):
        WorkedKey(control, LeaseStore(control), make_key("test", "q", {}, 1)).store_value("there")
        yield server


@pytest.fixture
def proxy(demoted: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy.before(demoted.url()) as made:
        yield made


@pytest.fixture(params=sorted(KINDS))
def reader(request: pytest.FixtureRequest, demoted: RedisServer, proxy: FaultProxy) -> Iterator[AnyReader]:
    url = proxy.url(demoted.url())
    settings = ReaderSettings(redis_url=url, broker_url=url, namespace="test", redis_timeout_seconds=MAX_WAIT_SECONDS)
    with ExitStack() as stack:
        made = KINDS[request.param](settings, ReaderEvents())
        stack.callback(made.close)
        yield made


READS: dict[str, Callable[[AnyReader], Any]] = {
    "get": lambda reader: reader.get("q", {}),
    "get_many": lambda reader: raised(reader.get_many([("q", {})])),
    "invalidate": lambda reader: reader.invalidate("q", {}),
}


def raised(results: list[Any]) -> Any:
    (result,) = results
    if isinstance(result, Exception):
        raise result
    return result.value


@pytest.mark.parametrize("how", READS)
def test_a_refused_call_raises_and_the_next_one_uses_another_connection(
    reader: AnyReader, proxy: FaultProxy, master: RedisServer, how: str
) -> None:
    with pytest.raises(CacheUnavailable, match=r"MASTERDOWN|Link with MASTER is down"):
        READS[how](reader)
    # That connection still works, but a new one leads elsewhere.
    proxy.leads_to(master.url())
    assert reader.get("q", {}) == "there"


@pytest.mark.parametrize(
    ("reply", "is_wrong"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", True),
        (b"-MASTERDOWN Link with MASTER is down\r\n", True),
        (b"-READONLY You can't write against a read only replica.\r\n", True),
        (b"-OOM command not allowed\r\n", False),
        (b"-WRONGTYPE Operation\r\n", False),
        (b"$-1\r\n", False),
    ],
)
def test_error_replies_of_a_node_that_is_not_the_master_are_recognised(reply: bytes, is_wrong: bool) -> None:
    reader = reply_reader()
    reader.feed(reply)
    assert is_wrong_node(reader.gets()) == is_wrong
