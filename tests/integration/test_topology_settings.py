"""The two settings of `benchmarks topology` do what they are said to do: who loads, who waits, who does not."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio
from neo4j import AsyncGraphDatabase, GraphDatabase

from api_client import AsyncCacheClient, ReaderSettings
from benchmarks.topology.asked import Asked, Kind
from benchmarks.topology.cell_reader import CellReader, Scene, Served
from benchmarks.topology.levels import Cell, Contestant, GraphKind, Load, Mode, Point, Setting, Skew
from benchmarks.topology.on_workers import OnWorkers
from benchmarks.topology.origin_load import BUSY_FIELD, LOADS_FIELD, LOADS_KEY, OriginLoad
from benchmarks.topology.own_process import Origin, OwnProcess
from refresher.demo.graph.social_graph import SocialGraph, load
from refresher.embedded import RedisServer

KEYS = [Asked(Kind.NEIGHBOURS, {"person_id": number}, 10) for number in range(3)]
VALUES = [[{"name": f"old {number}"}] for number in range(3)]
READERS = 20


def scene(mode: Mode, beta0: float = 1.0) -> Scene:
    # So long that none expires in a test; a lead is at most half of it.
    point = Point(GraphKind.RMAT, 2_000.0, 0.05, Load(clients=1), Skew.EVENLY)
    return Scene(Cell(point, Contestant(Setting.OWN_PROCESS, mode, beta0), 1), KEYS, VALUES)


class GatedOrigin(Origin):
    """Loads when the test says so."""

    def __init__(self) -> None:
        self.load_so_far = OriginLoad()
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()

    async def load(self, asked: Asked, pause_seconds: float) -> Any:
        self.load_so_far = OriginLoad(self.load_so_far.loads + 1, 0.0)
        self.began.set()
        await self.may_end.wait()
        return [{"name": "new"}]


@asynccontextmanager
async def own_process(server: RedisServer, what: Scene) -> AsyncIterator[tuple[OwnProcess, GatedOrigin]]:
    origin = GatedOrigin()
    async with redis.asyncio.Redis.from_url(server.url(0)) as client:
        reader = OwnProcess(what, client, origin, "test-own", random.Random(1))  # noqa: S311 - no secret
        yield reader, origin
        origin.may_end.set()
        await reader.clear()
        assert await client.keys("test-own*") == []


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 60)

    asyncio.run(bounded())


def test_one_of_many_who_miss_loads_and_all_wait(clean_redis: RedisServer) -> None:
    async def scenario() -> None:
        async with own_process(clean_redis, scene(Mode.PLAIN)) as (reader, origin):
            await reader.put([-1.0, -1.0, -1.0])
            reads = [asyncio.create_task(reader.read(0)) for _ in range(READERS)]
            await origin.began.wait()
            assert not any(read.done() for read in reads)
            origin.may_end.set()
            assert Counter(await asyncio.gather(*reads)) == {Served.WAITED: READERS}
            assert (await reader.origin_load()).loads == 1
            assert await reader.read(0) is Served.FRESH

    run(scenario)


def test_an_early_refresh_holds_nobody_up(clean_redis: RedisServer) -> None:
    """With so large a β every draw is early. The load hangs; reads return all the same, and no other one begins."""

    async def scenario() -> None:
        async with own_process(clean_redis, scene(Mode.PLAIN, beta0=1e6)) as (reader, origin):
            await reader.put([900.0, 1_900.0, 1_900.0])
            assert {await reader.read(0) for _ in range(READERS)} == {Served.FRESH}
            await origin.began.wait()
            await asyncio.gather(*(reader.read(0) for _ in range(READERS)))
            assert (await reader.origin_load()).loads == 1
            [lead] = reader.leads
            assert lead.degree == 10
            assert 0 < lead.seconds <= 900

    run(scenario)


def test_without_early_refresh_only_the_expiry_counts(clean_redis: RedisServer) -> None:
    async def scenario() -> None:
        async with own_process(clean_redis, scene(Mode.NO_EARLY, beta0=1e6)) as (reader, origin):
            await reader.put([900.0, 900.0, 900.0])
            assert {await reader.read(number) for number in (0, 1, 2)} == {Served.FRESH}
            origin.may_end.set()
            await reader.clear()  # whatever was begun is through by then
            assert (await reader.origin_load()).loads == 0

    run(scenario)


def test_a_lock_is_given_back_by_its_holder_alone(clean_redis: RedisServer) -> None:
    async def scenario() -> None:
        async with own_process(clean_redis, scene(Mode.PLAIN)) as (reader, origin):
            waits = asyncio.create_task(reader.read(0))
            await origin.began.wait()
            # The holder was so slow that its lock ran out, and another has it now.
            await reader.client.set("test-own:own:0:lock", "another")
            origin.may_end.set()
            await waits
            assert await reader.client.get("test-own:own:0:lock") == b"another"

    run(scenario)


def test_an_error_of_a_read_is_counted(clean_redis: RedisServer) -> None:
    class Broken(GatedOrigin):
        async def load(self, asked: Asked, pause_seconds: float) -> Any:
            raise OSError("no graph")

    async def scenario() -> None:
        async with own_process(clean_redis, scene(Mode.PLAIN, beta0=1e6)) as (reader, _):
            reader.origin = Broken()
            assert await reader.read_and_count(0) is Served.FAILED
            assert reader.failures == {"OSError": 1}
            # One that nobody waits for is counted as well.
            await reader.put([900.0, 900.0, 900.0])
            assert await reader.read_and_count(0) is Served.FRESH
            await reader.clear()
            assert reader.failures == {"OSError": 2}

    run(scenario)


@asynccontextmanager
async def on_workers(server: RedisServer, what: Scene) -> AsyncIterator[CellReader]:
    settings = ReaderSettings(
        redis_url=server.url(0), broker_url=server.url(1), namespace="test-workers", redis_timeout_seconds=10.0
    )
    client = AsyncCacheClient(settings)
    async with (
        redis.asyncio.Redis.from_url(server.url(0)) as cache,
        redis.asyncio.Redis.from_url(server.url(1)) as broker,
        redis.asyncio.Redis.from_url(server.url(2)) as control,
    ):
        yield OnWorkers(what, client, 0, cache, broker, control)
        await client.close()
        for database in (cache, broker, control):
            await database.flushdb()


def test_a_stale_value_is_served_while_no_worker_comes(clean_redis: RedisServer) -> None:
    async def scenario() -> None:
        async with on_workers(clean_redis, scene(Mode.NO_EARLY)) as reader:
            await reader.put([-1.0, 1_900.0, 1_900.0])
            assert {await reader.read(0) for _ in range(READERS)} == {Served.STALE}
            assert await reader.read(1) is Served.FRESH
            assert reader.leads == []  # what is asked for after the expiry is not early

    run(scenario)


def test_who_asks_early_is_noted_not_who_is_spared(clean_redis: RedisServer) -> None:
    async def scenario() -> None:
        async with on_workers(clean_redis, scene(Mode.TOPOLOGY, beta0=1e5)) as reader:
            await reader.put([900.0, 1_900.0, 1_900.0])
            assert {await reader.read(0) for _ in range(READERS)} == {Served.FRESH}
            # A process that has asked is silent for a second, if that takes so long.
            assert 1 <= len(reader.leads) < READERS
            assert reader.leads[0].degree == 10
            assert 0 < reader.leads[0].seconds <= 900

    run(scenario)


def test_what_workers_have_loaded_is_read_from_the_control_database(clean_redis: RedisServer) -> None:
    async def scenario() -> None:
        async with on_workers(clean_redis, scene(Mode.PLAIN)) as reader:
            assert await reader.origin_load() == OriginLoad()
            async with redis.asyncio.Redis.from_url(clean_redis.url(2)) as control:
                await control.hset(LOADS_KEY, mapping={LOADS_FIELD: 3, BUSY_FIELD: "0.25"})
            assert (await reader.origin_load()).since(OriginLoad(1, 0.05)) == OriginLoad(2, pytest.approx(0.2))

    run(scenario)


GRAPH = SocialGraph.generated(60, 150, seed=3)


@pytest.fixture(scope="module", params=["arcadedb", "neo4j_server"])
def graph_server(request: pytest.FixtureRequest) -> Iterator[Any]:
    server = request.getfixturevalue(request.param)
    with GraphDatabase.driver(server.bolt_uri, auth=(server.user, server.password)) as driver:
        driver.execute_query("MATCH (p:Person) DETACH DELETE p", database_=server.database)
        load(driver, server.database, GRAPH)
        yield server
        driver.execute_query("MATCH (p:Person) DETACH DELETE p", database_=server.database)


def test_queries_answer_the_same_on_both_engines(graph_server: Any) -> None:
    """Against the graph itself: who is a neighbour, how many are within two steps, and how long a path is."""
    friends: dict[int, set[int]] = {number: set() for number in range(GRAPH.persons)}
    for source, target in zip(GRAPH.sources.tolist(), GRAPH.targets.tolist(), strict=True):
        friends[source].add(target)
        friends[target].add(source)

    async def scenario() -> None:
        async with AsyncGraphDatabase.driver(
            graph_server.bolt_uri, auth=(graph_server.user, graph_server.password)
        ) as driver:
            origin = Origin(driver, graph_server.database)
            for person in range(0, GRAPH.persons, 7):
                rows = await origin.load(Asked(Kind.NEIGHBOURS, {"person_id": person}, 1), 0.0)
                assert [row["name"] for row in rows] == sorted(GRAPH.names[friend] for friend in friends[person])
                [row] = await origin.load(Asked(Kind.TWO_HOPS, {"person_id": person}, 1), 0.0)
                two_steps = set().union(*(friends[friend] for friend in friends[person])) - {person}
                assert row["reached"] == len(two_steps)
                other = next(iter(friends[next(iter(friends[person]))] - {person}), next(iter(friends[person])))
                params = {"person_id": person, "other_id": other}
                [row] = await origin.load(Asked(Kind.SHORTEST_PATH, params, 1), 0.0)
                assert len(row["names"]) == (2 if other in friends[person] else 3)
                json.dumps(row)
            assert origin.load_so_far.loads == 3 * len(range(0, GRAPH.persons, 7))
            assert origin.load_so_far.busy_seconds > 0

    run(scenario)
