"""The documentation's pictures: a healthy system with one failing query, on its pages and in Flower."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from api_client import CacheClient
from refresher.embedded import GuardedProcess
from tests.acceptance.conftest import ROOT, System
from tests.support.flower import PASSWORD, USER, Flower
from tests.support.pictures import photograph
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

KEYS: Final = {"friends_of": 60, "paths_between": 30, "recommended_for": 20, "groups_of": 3}
LONGEST_TTL_SECONDS: Final = 40
SECONDS: Final = 120
WIDTH: Final = 1100
"""Of a page, in pixels: what stands on it can still be read where pages show it at 830."""
COLUMNS: Final = "name,args,state,result,received,uuid"


class Readers:
    """Reads of all keys, the first ones more often than the last; each key is read every few seconds."""

    def __init__(self, client: CacheClient) -> None:
        self._client, self._draw = client, random.Random(1)  # noqa: S311 - which key is read next
        self._reads = [(query, {"person_id": person}) for query, keys in KEYS.items() for person in range(keys)]
        self._weights = [1 + 6 / (1 + params["person_id"]) for _, params in self._reads]

    def begin(self) -> None:
        """Load each key for the first time, spread over the longest TTL: they don't all expire at once."""
        for call in self._draw.sample(self._reads, len(self._reads)):
            self._client.refresh(*call)
            time.sleep(LONGEST_TTL_SECONDS / len(self._reads))
        self.read(LONGEST_TTL_SECONDS / 4)

    def fail_among_others(self) -> None:
        """Let a key fail now that would fail much later, followed by a few that don't."""
        self._client.refresh("groups_of", {"person_id": 0})
        self.read(1)

    def read(self, seconds: float) -> None:
        """Read for ``seconds``."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._client.get(*self._draw.choices(self._reads, self._weights)[0])
            time.sleep(0.002)


def opened(browser: Browser, user: str, password: str) -> Page:
    """A page of a size that fits into others."""
    context = browser.new_context(
        http_credentials={"username": user, "password": password}, viewport={"width": WIDTH, "height": 600}
    )
    context.set_default_timeout(1_000 * MAX_WAIT_SECONDS)
    return context.new_page()


def taken(page: Page, name: str) -> None:
    """Take the page in both colour schemes."""
    for scheme, suffix in (("light", ""), ("dark", "-dark")):
        page.emulate_media(color_scheme=scheme)
        photograph(page, name + suffix, full_page=True, animations="disabled")  # which would be half-way


@pytest.mark.long
@pytest.mark.timeout(5 * MAX_WAIT_SECONDS)
def test_pictures_of_a_healthy_system_with_one_failing_query(system: System, browser: Browser, tmp_path: Path) -> None:
    system.cache.config_set("maxmemory-policy", "allkeys-lfu")  # so that it knows which keys are read most
    system.env |= {
        "REFRESHER_QUERIES": "tests.support.pictured_queries",
        "PICTURED_FAILS_FROM": str(time.time() + 1.25 * LONGEST_TTL_SECONDS + SECONDS / 2),
        "FLOWER_TASKS_COLUMNS": COLUMNS,
        "FLOWER_BASIC_AUTH": f"{USER}:{PASSWORD}",
        "REFRESHER_STATUS_PASSWORD": PASSWORD,
    }
    system.start_worker("-c", "4")
    flower = Flower(system.env, tmp_path)
    readers = Readers(system.client())
    try:
        eventually(lambda: flower.sees("worker-1@test"), "Flower knows the worker")
        readers.begin()
        page_of_the_status(system, browser, tmp_path, lambda: readers.read(SECONDS))
        pages_of_flower(flower, opened(browser, USER, PASSWORD), readers)
    finally:
        flower.process.kill()


def page_of_the_status(system: System, browser: Browser, folder: Path, meanwhile: Callable[[], None]) -> None:
    served = GuardedProcess.start(
        [sys.executable, "-u", "-m", "refresher.cli", "status", "--web", "--port", "0", "--watch", "1"],
        env=system.env, cwd=ROOT, log_file=folder / "page.log",
    )  # fmt: skip
    try:
        url = eventually(lambda: re.search(r"http://127\.0\.0\.1:\d+/", served.tail_of_log()), "the page is served")
        page = opened(browser, "refresher", PASSWORD)
        page.goto(url[0])
        meanwhile()
        for query in KEYS:
            page.locator("#queries tr", has_text=query).wait_for()

        taken(page, "status-page")
    finally:
        served.kill()


def pages_of_flower(flower: Flower, page: Page, readers: Readers) -> None:
    failed = page.locator("#tasks-table tbody tr", has_text="FAILURE").first
    readers.fail_among_others()

    def shows_a_failure() -> bool:
        page.goto(f"{flower.url}/tasks", wait_until="networkidle")
        return failed.is_visible()

    eventually(shows_a_failure, "a failed task is among the last ones")
    taken(page, "flower-tasks")
    failed.locator("a[href*='/task/']").first.click()
    page.wait_for_url("**/task/*")
    assert "loader_error" in page.locator("#task-page").inner_text()
    taken(page, "flower-task")
    page.goto(f"{flower.url}/broker", wait_until="networkidle")
    page.locator("#queue-table tr", has_text="cache.refresh").first.wait_for()
    taken(page, "flower-broker")
