"""``refresher status`` on a real Redis: what it counts, and how it reports what can't be counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner

from api_client.protocol import tags
from api_client.protocol.budget import Budget, Share, Urgency
from api_client.protocol.entry import encode_tags
from api_client.protocol.keys import budget_keys, make_key, pending_tags_key
from api_client.protocol.messages import RefreshItem
from api_client.transport.scripts import LeaseStore
from api_client.trigger.broker import CeleryBroker
from refresher.cli.commands import app
from refresher.embedded import RedisServer, free_port
from refresher.flow.dead_letters import DeadLetters
from refresher.ops import status
from refresher.ops.scan import scan_keys
from tests.contract.test_dead_letters import a_letter
from tests.support.command_line import CommandLine
from tests.support.fault_proxy import FaultProxy
from tests.support.lease_world import World
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

SECRET = "canary-51d0"
pytestmark = pytest.mark.usefixtures("no_worker_is_waited_for", "patient_commands")


class Place(CommandLine):
    """A cache and a broker, and the command that shows them."""

    def __init__(self, server: RedisServer, client: redis.Redis) -> None:
        super().__init__("status", {"CACHE_REDIS_URL": server.url(0), "CACHE_BROKER_URL": server.url(1)})
        self.server, self.client = server, client

    def world(self, query: str, number: int) -> World:
        """One key, and all that can happen to it."""
        return World(self.client, LeaseStore(self.client), make_key("cache", query, {"n": number}, 1))

    def plant(self, query: str, number: int, left_seconds: float) -> World:
        world, token = self.world(query, number), 1
        now_us = world.now_us()
        world.plant(token, soft_expiry_us=now_us + int(left_seconds * 1e6))
        return world


@pytest.fixture
def place(clean_redis: RedisServer) -> Iterator[Place]:
    with redis.Redis.from_url(clean_redis.url(0)) as client:
        yield Place(clean_redis, client)


def test_tags_and_their_pending_invalidations_are_counted(place: Place) -> None:
    assert "tags" not in place.run().output
    assert place.run_json()["keys"]["tags"] == {"indexes": 0, "members": 0, "largest": 0, "pending": 0, "overdue": 0}
    store = LeaseStore(place.client)
    for number in range(3):
        store.run(tags.register(make_key("cache", "q", {"n": number}, 1), "people", lives_seconds=60))
    store.run(tags.register(make_key("cache", "q", None, 1), "places", lives_seconds=60))
    store.run(tags.keep("cache", b"now", lease_seconds=10))
    assert place.run_json()["keys"]["tags"] == {"indexes": 2, "members": 4, "largest": 3, "pending": 1, "overdue": 0}
    assert "2 tags seen, 4 members, at most 3 in one; 1 invalidation pending" in place.run().output
    place.client.zadd(pending_tags_key("cache"), {"long ago": 1})
    assert place.run_json()["keys"]["tags"]["overdue"] == 1


@pytest.mark.usefixtures("no_share_ends")
def test_loads_in_progress_under_a_budget_are_counted(place: Place) -> None:
    assert "budgets" not in place.run().output
    assert place.run_json()["keys"]["budgets"] == {}
    store = LeaseStore(place.client)
    for name, query in (("1", "friends_of"), ("2", "friends_of"), ("3", "names_of")):
        share = Share("cache", query, name, Budget(concurrency=9), Budget())
        assert store.run(share.take(Urgency.STALE)) == 0
    place.client.zadd(budget_keys("cache", "names_of")[0], {"ended long ago": 1})
    assert place.run_json()["keys"]["budgets"] == {"*": 3, "friends_of": 2, "names_of": 1}
    assert "loads in progress: all 3, friends_of 2, names_of 1" in place.run().output


def test_tags_and_budgets_that_this_user_may_not_see_are_null(place: Place) -> None:
    share = Share("cache", "q", "1", Budget(concurrency=9), Budget())
    assert LeaseStore(place.client).run(share.take(Urgency.STALE)) == 0
    place.client.execute_command("ACL", "SETUSER", "some", "reset", "on", ">x", "%RW~cache:e1:*", "&*", "+@all")
    try:
        url = f"redis://some:x@{place.server.host}:{place.server.port}/0"
        seen = place.run_json(CACHE_REDIS_URL=url, exit_code=1)["keys"]
        assert (seen["tags"], seen["budgets"]) == (None, None)
    finally:
        place.client.execute_command("ACL", "DELUSER", "some")


def test_keys_and_refreshes_are_counted_by_query(place: Place) -> None:
    for number in range(5):
        place.plant("friends_of", number, 500.0)
    place.plant("friends_of", 5, -100.0)
    place.plant("paths", 0, 500.0)
    place.world("friends_of", 1).claim()
    place.world("friends_of", 6).claim()
    running, failed = place.world("paths", 1), place.world("paths", 2)
    running.acquire()
    failed.fail(failed.acquire().token)
    place.client.set("somebody.else", "x")
    report = place.run_json()
    friends, paths = report["keys"]["queries"]["friends_of"], report["keys"]["queries"]["paths"]
    assert (friends["keys"], friends["headers"], friends["stale"], friends["queued"]) == (6, 6, 1, 2)
    assert friends["oldest_stale"] == pytest.approx(100, abs=MAX_WAIT_SECONDS)
    assert friends["lead"] == 0.5
    assert friends["longest_wait"] >= 0
    assert (paths["keys"], paths["running"], paths["cooling"], paths["queued"], paths["lapsed"]) == (1, 1, 1, 0, 0)
    assert [(run["query"], run["key"]) for run in report["keys"]["runs"]] == [
        ("paths", place.world("paths", 1).key.short)
    ]
    assert (report["ok"], report["keys"]["is_sample"], report["problems"]) == (True, False, {})
    assert sorted(report["keys"]["queries"]) == ["friends_of", "paths"]


def test_an_entry_with_many_tags_is_counted_as_others_are(place: Place) -> None:
    place.world("friends_of", 1).plant(
        1, encoded_tags=encode_tags([f"Person:name={n}".ljust(90, "e") for n in range(64)])
    )
    assert place.run_json()["keys"]["queries"]["friends_of"]["headers"] == 1
    assert place.run_json()["keys"]["unreadable"] == {}


@pytest.mark.parametrize("seconds", [2_000, -5], ids=["expired", "from the future"])
def test_a_record_beyond_its_deadline_counts_as_lapsed(place: Place, seconds: float) -> None:
    world = place.world("friends_of", 1)
    world.acquire()
    world.pass_time(seconds)
    row = scan_keys(place.client, "cache").queries["friends_of"]
    assert (row.running, row.lapsed) == (0, 1)


def test_another_namespace_is_not_counted(place: Place) -> None:
    place.plant("friends_of", 1, 500.0)
    assert scan_keys(place.client, "cach").queries == {}


def test_queues_and_dead_letters_are_shown(place: Place) -> None:
    broker = CeleryBroker(place.env["CACHE_BROKER_URL"], "cache")
    broker.publish([RefreshItem(query="q")], has_waiter=False)
    broker.publish([RefreshItem(query="q")], has_waiter=False)
    broker.publish([RefreshItem(query="q")], has_waiter=True)
    broker.close()
    DeadLetters(place.client, "cache").add(a_letter(7, params={"name": SECRET}))
    report, shown = place.run_json(), place.run()
    assert report["queues"] == {"refresh": 2, "miss": 1}
    assert report["dead"] == {"open": {"q": 1}, "quarantined": {}}
    assert report["workers"] == []
    assert "2 background and 1 blocking refreshes queued" in shown.stdout
    assert "1 dead key, 0 in quarantine: refresher dead list" in shown.stdout
    assert "none replies: nothing is refreshed" in shown.stdout
    assert "no keys in the cache" not in shown.stdout
    assert SECRET not in shown.stdout + json.dumps(report)


def test_more_keys_than_the_limit_are_reported_as_a_sample(place: Place) -> None:
    with place.client.pipeline(transaction=False) as pipeline:
        for number in range(5_000):
            pipeline.set(make_key("cache", "many", {"n": number}, 1).entry, "no entry")
        pipeline.execute()
    some = scan_keys(place.client, "cache", max_keys=1_000)
    assert (some.is_sample, some.keys_of_server) == (True, 5_000)
    assert 0 < some.queries["many"].keys < 5_000
    every = scan_keys(place.client, "cache")
    assert (every.is_sample, every.queries["many"].keys, every.queries["many"].headers) == (False, 5_000, 0)
    assert "a sample of 5,000 keys" in place.run("--keys", "1000").stdout


@pytest.mark.parametrize(
    ("variable", "fault", "parts"),
    [
        ("CACHE_REDIS_URL", "refuses", {"keys", "dead", "feed"}),
        ("CACHE_BROKER_URL", "hangs", {"queues", "workers"}),
    ],
)
def test_a_missing_or_silent_server_is_reported_and_the_rest_is_shown(
    place: Place, variable: str, fault: str, parts: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "hangs":
        for name in ("broker.LINK_SECONDS", "status.BROKER_SECONDS", "status.WORKERS_SECONDS"):
            monkeypatch.setattr(f"refresher.ops.{name}", 1.0)
    with FaultProxy.before(place.env[variable]) as proxy:
        getattr(proxy, fault)()
        report = place.run_json(exit_code=1, **{variable: proxy.url(place.env[variable])})
    assert set(report["problems"]) == parts
    assert {part for part in ("keys", "dead", "queues", "workers") if report[part] is None} == parts - {"feed"}
    assert all(f"{variable}=redis://" in problem for problem in report["problems"].values())
    assert place.server.password not in json.dumps(report)


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_a_broker_that_the_fallback_names_is_reported_by_that_variable(place: Place, command: str) -> None:
    fallback = {"CACHE_BROKER_URL": "", "CELERY_BROKER_URL": f"redis://127.0.0.1:{free_port()}/0"}
    done = CliRunner().invoke(app, [command, "--json"], env={**place.env, **fallback})
    assert done.exit_code == 1
    assert "CELERY_BROKER_URL=redis://" in done.stdout
    assert "CACHE_BROKER_URL" not in done.stdout


def test_a_probe_timeout_is_reported_as_such(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "CACHE_SECONDS", 0.05)
    with FaultProxy.before(place.env["CACHE_REDIS_URL"]) as proxy:
        proxy.hangs()
        report = place.run_json(exit_code=1, CACHE_REDIS_URL=proxy.url(place.env["CACHE_REDIS_URL"]))
    assert report["problems"]["keys"].endswith("did not answer within 0.05 s")


def test_a_wrong_password_is_named(place: Place) -> None:
    wrong = place.env["CACHE_REDIS_URL"].replace(place.server.password, SECRET)
    done = place.run(CACHE_REDIS_URL=wrong)
    assert done.exit_code == 1
    assert "it refuses this user or password" in done.stdout
    assert SECRET not in done.stdout


def test_watching_goes_on_through_an_outage_and_ctrl_c_ends_it_with_0(place: Place, tmp_path: Path) -> None:
    with FaultProxy.before(place.env["CACHE_REDIS_URL"]) as proxy, (tmp_path / "said").open("w+") as said:
        watching = subprocess.Popen(
            [sys.executable, "-m", "refresher.cli", "status", "--json", "--watch", "0.5"],
            env={**os.environ, **place.env, "CACHE_REDIS_URL": proxy.url(place.env["CACHE_REDIS_URL"])},
            stdout=said,
            stderr=subprocess.STDOUT,
        )

        def oks() -> list[bool]:
            lines = Path(said.name).read_text().splitlines(keepends=True)
            return [json.loads(line)["ok"] for line in lines if line.endswith("\n")]

        try:
            eventually(lambda: True in oks(), "a poll")
            proxy.refuses()
            eventually(lambda: False in oks(), "a poll without the cache")
            proxy.passes()
            eventually(lambda: oks()[-1], "a poll with it again")
            watching.send_signal(signal.SIGINT)
            assert watching.wait(MAX_WAIT_SECONDS) == 0
        finally:
            watching.kill()
            watching.wait()
        assert "Traceback" not in Path(said.name).read_text()


def test_wrong_usage_is_exit_code_2(place: Place) -> None:
    assert place.run("--once", "--watch", "2").exit_code == 2
    assert place.run("--watch", "0").exit_code == 2


def test_status_of_an_empty_cache_succeeds(place: Place) -> None:
    done = place.run()
    assert done.exit_code == 0
    assert "no keys in the cache" in done.stdout


def test_status_without_a_broker_fails_and_names_it(place: Place) -> None:
    done = place.run(CACHE_BROKER_URL=f"amqp://guest:{SECRET}@127.0.0.1:{free_port()}//")
    assert done.exit_code == 1
    assert "the broker at CACHE_BROKER_URL=amqp://guest:***@127.0.0.1" in done.stdout
    assert SECRET not in done.stdout
