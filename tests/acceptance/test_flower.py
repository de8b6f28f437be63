"""Flower, as `celery -A refresher flower` starts it, in a real browser: who may sign in, and what is shown."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest
from celery import Celery

from api_client.config.broker import queues
from api_client.protocol.messages import RefreshReason, item_for
from api_client.trigger.broker import CeleryBroker
from refresher.embedded import ArcadeDbServer, RedisServer
from refresher.flower import DEFAULTS
from tests.acceptance.conftest import System, system_of_module
from tests.support.flower import PASSWORD, USER, Flower
from tests.support.pictures import photograph
from tests.support.processes import addresses_beyond_loopback
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


WORKER: Final = "worker-1@test"
PATIENT_APP: Final = "tests.support.broker_retry_app"
pytestmark = pytest.mark.usefixtures("published_once")
PRIVATE = "private-person-4711"
# Each request that changes something: workers, their pools and queues, tasks.
WRITES = (
    "worker/shutdown/{worker}", "worker/pool/restart/{worker}", "worker/pool/grow/{worker}",
    "worker/pool/shrink/{worker}", "worker/pool/autoscale/{worker}",
    "worker/queue/add-consumer/{worker}", "worker/queue/cancel-consumer/{worker}",
    "task/apply/refresher.refresh", "task/async-apply/refresher.refresh", "task/send-task/refresher.refresh",
    "task/abort/x", "task/timeout/refresher.refresh", "task/rate-limit/refresher.refresh", "task/revoke/x",
)  # fmt: skip
WIDTHS = (1720, 1300, 1100, 780, 390)
LONGEST = ("q" * 100, "×64: v1 3f2a9c0d1e2f early, v12 3f2a9c0d1e2f invalidated", "a.very.long_name-" * 5)
# Cells that are out of sight in their card, or that another one covers.
CUT_OFF = """() => {
  const card = document.querySelector(".tasks-table-card").getBoundingClientRect();
  const cells = [...document.querySelectorAll("#tasks-table tbody td")];
  const isCut = (one) => one.getBoundingClientRect().right > card.right || one.scrollWidth > one.clientWidth;
  return cells.filter(isCut).map((one) => one.textContent);
}"""


class Scene:
    """A system with a worker of `PATIENT_APP` and two processes, and the refreshes in it.

    ``digests`` are those of the keys, by their outcome.
    """

    def __init__(self, system: System) -> None:
        self.system, self.client = system, system.client()
        self.digests: dict[str, str] = {}

    def run(self) -> None:
        """Let a refresh end in each way; finally one is loading, one waits for its retry, two are queued."""
        self._ended()
        self._under_way()

    def go_on(self) -> None:
        """Let the worker take messages again, and complete the refreshes in progress."""
        self._control("add_consumer")
        self.system.open_gate("running")

    def _ended(self) -> None:
        client, system = self.client, self.system
        params = self._named("invalidated", "changed")
        before = client.get_entry("long_lived", params, timeout=MAX_WAIT_SECONDS).token
        client.invalidate("long_lived", params)
        eventually(lambda: client.get_entry("long_lived", params).token > before, "an invalidated one's")
        params = self._named("skipped", "twice")
        client.get("long_lived", params, timeout=MAX_WAIT_SECONDS)
        broker = CeleryBroker(system.env["CACHE_BROKER_URL"], system.env.get("CACHE_NAMESPACE", "cache"))
        broker.publish([item_for(client.key("long_lived", params), 0, RefreshReason.EARLY)], has_waiter=False)
        broker.close()
        params = self._named("rejected", "overtaken") | {"hold": "overtaken"}
        self.digests["rejected"] = client.key("long_lived", params).short
        client.refresh("long_lived", params)
        eventually(lambda: system.loads("overtaken") == 1, "a load that will be overtaken")
        client.invalidate("long_lived", params, hard=True)
        system.open_gate("overtaken", times=2)
        eventually(lambda: system.loads("overtaken") == 2, "the load after it")
        self.digests["dead"] = client.key("unencodable").short
        client.refresh("unencodable")
        eventually(lambda: system.record(client.key("unencodable")).get("state") == "cooling", "it cools")

    def _under_way(self) -> None:
        system = self.system
        for name in ("running", "again"):
            params = self._named(name, name) | {"hold": name}
            self.digests[name] = self.client.key("long_lived", params).short
            self.client.refresh("long_lived", params)
            eventually(partial(system.loads, name), f"the load {name}")
        self._control("cancel_consumer")
        # No more messages are taken: the retry stays one.
        system.control.rpush("script:again", "fail")
        system.open_gate("again", times=2)
        for number in range(2):
            self.client.refresh("long_lived", {"key": f"queued {number}"})

    def _named(self, outcome: str, key: str) -> dict[str, str]:
        self.digests[outcome] = self.client.key("long_lived", {"key": key}).short
        return {"key": key}

    def _control(self, order: str) -> None:
        """Make the worker take messages, or stop taking any; return when it has answered for each queue."""
        url = self.system.env["CACHE_BROKER_URL"]
        with Celery("scene", broker=url, set_as_current=False) as app:
            app.conf.broker_url = url
            for queue in queues(self.system.env.get("CACHE_NAMESPACE", "cache"), url):
                eventually(partial(self._is_done, app, order, queue.name), f"{order}: an answer")

    def _is_done(self, app: Celery, order: str, queue: str) -> bool:
        replies = getattr(app.control, order)(queue, destination=[WORKER], reply=True, limit=1, timeout=5)
        return any("ok" in reply.get(WORKER, {}) for reply in replies)


def scene_of(system: System) -> Scene:
    """Start the worker, and return the scene."""
    system.start_worker("-c", "2", app=PATIENT_APP, CACHE_XFETCH_TIMEOUT="5m")  # held loads must stay visible
    return Scene(system)


@dataclass(frozen=True)
class FlowerSystem:
    """A system with its one worker, a scene to run in it, and a Flower that monitors it."""

    system: System
    scene: Scene
    flower: Flower


@pytest.fixture(scope="module")
def flower_system(
    redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FlowerSystem]:
    with ExitStack() as stack:
        system = stack.enter_context(system_of_module(redis_server, arcadedb, tmp_path_factory))
        flower = Flower(system.env, tmp_path_factory.mktemp("flower"), FLOWER_BASIC_AUTH=f"{USER}:{PASSWORD}")
        stack.callback(flower.process.kill)
        scene = scene_of(system)
        eventually(lambda: flower.sees(WORKER), "Flower knows the worker")
        yield FlowerSystem(system, scene, flower)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(
        http_credentials={"username": USER, "password": PASSWORD}, viewport={"width": 1720, "height": 800}
    )
    context.set_default_timeout(1_000 * MAX_WAIT_SECONDS)
    yield context.new_page()
    context.close()


def rows_of(page: Page, flower: Flower) -> list[str]:
    """The texts of the rows on the page of tasks."""
    page.goto(f"{flower.url}/tasks", wait_until="networkidle")
    length = page.get_by_label("Tasks per page")
    if length.input_value() != "30":  # which the browser remembers
        length.select_option("30")
        page.wait_for_load_state("networkidle")
    return page.locator("#tasks-table tbody tr").all_inner_texts()


def row_with(page: Page, flower: Flower, digest: str, *words: str) -> str:
    """The text of a key's row that has all these words, once there is one."""

    def found() -> str:
        return next((row for row in rows_of(page, flower) if all(word in row for word in (digest, *words))), "")

    return eventually(found, f"a row of {digest} with {words}")


def open_task(page: Page, digest: str) -> str:
    """Open the page of a key's first task from the list, and return its text."""
    page.locator("#tasks-table tbody tr", has_text=digest).locator("a[href*='/task/']").first.click()
    page.wait_for_url("**/task/*")
    return page.locator("#task-page").inner_text()


def test_nobody_gets_in_without_the_password(flower_system: FlowerSystem, browser: Browser) -> None:
    from playwright.sync_api import Error

    flower = flower_system.flower
    for path in ("/", "/workers", f"/worker/{WORKER}", "/tasks", "/tasks/datatable", "/broker", "/api/tasks"):
        assert flower.fetch(path, password=None)[0] == http.client.UNAUTHORIZED
        assert flower.fetch(path, password="wrong")[0] == http.client.UNAUTHORIZED
    stranger = browser.new_context()
    with pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):  # so a headless browser says 401
        stranger.new_page().goto(f"{flower.url}/tasks")
    stranger.close()


@pytest.mark.promise("Contract and operation", "Flower shows refreshes, and changes nothing")
def test_flower_rejects_every_write_with_and_without_the_password(flower_system: FlowerSystem) -> None:
    for write in WRITES:
        path = f"/api/{write.format(worker=WORKER)}"
        assert flower_system.flower.fetch(path, method="POST", password=None)[0] == http.client.UNAUTHORIZED, path
        assert flower_system.flower.fetch(path, method="POST")[0] == http.client.FORBIDDEN, path


def test_flower_shows_a_refresh_from_received_to_success_without_its_params(
    flower_system: FlowerSystem, page: Page
) -> None:
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    system, flower, client = flower_system.system, flower_system.flower, flower_system.system.client()
    params = {"key": PRIVATE, "hold": "seen"}
    digest = client.key("long_lived", params).short
    client.refresh("long_lived", params)
    begun = row_with(page, flower, digest, "STARTED")
    assert "refresh long_lived" in begun
    assert f"v1 {digest} manual" in begun
    assert "committed" not in begun
    received = begun.split("\t")[5]
    assert received.startswith("20")
    system.open_gate("seen")
    ended = row_with(page, flower, digest, "SUCCESS", "committed (manual)", "token=", "run=")
    assert received in ended

    seen = [page.content()]
    assert digest in open_task(page, digest)
    seen.append(page.content())
    page.goto(f"{flower.url}/worker/{WORKER}", wait_until="networkidle")
    seen.append(page.content())
    for secret in (PRIVATE, system.redis_server.password, system.env["NEO4J_PASSWORD"], PASSWORD):
        assert not any(secret in content for content in seen)
    assert [url for url in requested if not url.startswith((flower.url, "data:"))] == []  # nothing from elsewhere


def test_flower_shows_outcomes_retries_and_queue_lengths(flower_system: FlowerSystem, page: Page) -> None:
    scene, flower = flower_system.scene, flower_system.flower
    scene.run()
    digests = scene.digests
    ends = {
        "running": ("STARTED",),
        "again": ("retry (transient)", "RETRY"),
        "invalidated": ("committed (invalidated)", "SUCCESS"),
        "skipped": ("skipped (already_fresh)", "SUCCESS"),
        "rejected": ("rejected (invalidated)", "SUCCESS"),
        "dead": ("dead: failed (", "FAILURE"),
    }

    def all_shown() -> bool:
        rows = rows_of(page, flower)
        return all(
            any(all(word in row for word in (digests[end], *words)) for row in rows) for end, words in ends.items()
        )

    eventually(all_shown, "a row for each end")

    page.goto(f"{flower.url}/broker", wait_until="networkidle")
    lengths = [row.inner_text().split("\t")[:2] for row in page.locator("#queue-table tbody tr").all()]
    assert sorted(lengths) == [["cache.refresh", "3"], ["cache.refresh-miss", "0"]]  # two, and the retry

    scene.go_on()
    row_with(page, flower, digests["running"], "SUCCESS")
    row_with(page, flower, digests["again"], "SUCCESS", "committed (manual)", "attempts=2", "\t1\t")
    text = open_task(page, digests["again"])
    assert "RetryLater('retry (transient)" in text
    assert "Retried" in text
    assert "File " not in text
    rows_of(page, flower)
    assert "File " not in open_task(page, digests["dead"])  # no traceback: the worker's log has it


def test_the_list_of_refreshes_fits_into_its_card(flower_system: FlowerSystem, page: Page) -> None:
    query, args, worker = LONGEST
    task = {"received": 1_790_000_000.1, "started": 1_790_000_000.2, "runtime": 0.123, "retries": 3}
    ends = {
        "SUCCESS": "committed (early) δ=0.131s run=0.115s token=1790000000000007",
        "FAILURE": "dead: failed (syntax)",
    }
    tasks = [
        task | {"uuid": str(UUID(int=number)), "name": f"refresh {query}", "args": args, "worker": worker,
                "state": state, "result": result}
        for number, (state, result) in enumerate(ends.items())
    ]  # fmt: skip
    answer = {"draw": 1, "data": tasks, "recordsTotal": len(tasks), "recordsFiltered": len(tasks)}
    page.route("**/tasks/datatable", lambda route: route.fulfill(json=answer))
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{flower_system.flower.url}/tasks", wait_until="networkidle")
        photograph(page, f"flower-long-{width}", full_page=True)
        assert page.locator("#tasks-table tbody td").count() == len(tasks) * len(
            str(DEFAULTS["tasks_columns"]).split(",")
        )
        assert page.evaluate(CUT_OFF) == [], f"at {width} px"
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_flower_without_options_listens_on_loopback_only_with_its_api_closed(
    flower_system: FlowerSystem, tmp_path: Path
) -> None:
    flower = Flower(flower_system.system.env, tmp_path)
    try:
        eventually(lambda: flower.fetch("/healthcheck", password=None)[0] == http.client.OK, "it answers")
        assert addresses_beyond_loopback(flower.process.pid) == []
        assert flower.fetch("/tasks", password=None)[0] == http.client.OK
        assert flower.fetch("/api/tasks", password=None)[0] == http.client.UNAUTHORIZED
        for write in WRITES:
            path = f"/api/{write.format(worker=WORKER)}"
            assert flower.fetch(path, method="POST", password=None)[0] == http.client.UNAUTHORIZED, path
    finally:
        flower.process.kill()
    assert "warning: Flower on 127.0.0.1 needs no password" in flower.process.log_file.read_text()


def test_flower_refuses_to_start_on_a_public_address_without_authentication(
    flower_system: FlowerSystem, tmp_path: Path
) -> None:
    flower = Flower(flower_system.system.env, tmp_path, FLOWER_ADDRESS="0.0.0.0")  # noqa: S104 - it refuses
    try:
        assert eventually(flower.process.poll, "Flower has ended") == 1
    finally:
        flower.process.kill()
    log = flower.process.tail_of_log()
    assert "error: Flower would listen on 0.0.0.0 and let anyone in" in log
    assert "Traceback" not in log
