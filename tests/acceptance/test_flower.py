"""Flower as it is deployed, in a real browser: who gets in, and what may be seen there."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.conftest import ROOT, System
from tests.support.browser import chromium
from tests.support.flower import PASSWORD, USER, Flower
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ARTEFACTS = ROOT / "test-artefacts"
PRIVATE = "private-person-4711"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def flower(system: System, tmp_path: Path) -> Iterator[Flower]:
    system.start_worker()
    flower = Flower(system.env, tmp_path, FLOWER_BASIC_AUTH=f"{USER}:{PASSWORD}")
    try:
        eventually(lambda: flower.sees("worker-1@test"), 30, "Flower hears of the worker")
        yield flower
    finally:
        flower.process.terminate(5)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(
        http_credentials={"username": USER, "password": PASSWORD}, viewport={"width": 1600, "height": 700}
    )
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


def row_of(page: Page, flower: Flower, digest: str) -> str:
    """The text of a task's row, once the task has ended."""

    def ended() -> str:
        page.goto(f"{flower.url}/tasks", wait_until="networkidle")
        rows = [row.inner_text() for row in page.locator("#tasks-table tbody tr").all()]
        return next((row for row in rows if digest in row and "SUCCESS" in row), "")

    return eventually(ended, 30, f"the task of {digest} is shown, and has ended")


def test_nobody_gets_in_without_the_password(flower: Flower, browser: Browser) -> None:
    from playwright.sync_api import Error

    for path in ("/", "/workers", "/tasks", "/broker", "/api/tasks"):
        assert flower.ask(path, password=None)[0] == http.client.UNAUTHORIZED
        assert flower.ask(path, password="wrong")[0] == http.client.UNAUTHORIZED
    stranger = browser.new_context()
    with pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):  # so a headless browser says 401
        stranger.new_page().goto(f"{flower.url}/tasks")
    stranger.close()


def test_a_refresh_is_shown_by_query_key_and_outcome_and_never_by_its_params(
    system: System, flower: Flower, page: Page
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    client = system.client()
    params = {"key": PRIVATE}
    digest = client.key("long_lived", params).short
    client.refresh("long_lived", params, wait=True, timeout=20)
    row = row_of(page, flower, digest)
    assert "refresh long_lived" in row
    assert "committed (" in row
    assert "token=" in row

    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "flower-tasks.png")
    seen = [page.content()]
    page.locator("#tasks-table tbody a[href*='/task/']").first.click()
    page.wait_for_url("**/task/*")
    page.screenshot(path=ARTEFACTS / "flower-task.png")
    seen.append(page.content())
    assert digest in seen[-1]
    page.goto(f"{flower.url}/worker/worker-1@test", wait_until="networkidle")
    seen.append(page.content())
    for secret in (PRIVATE, system.redis_server.password, system.env["NEO4J_PASSWORD"], PASSWORD):
        assert not any(secret in content for content in seen)
    assert [url for url in asked if not url.startswith((flower.url, "data:"))] == []  # nothing from elsewhere


def test_what_came_of_a_refresh_that_fails_is_shown(system: System, flower: Flower, page: Page) -> None:
    client = system.client()
    digest = client.key("syntax_error").short
    client.refresh("syntax_error")
    assert f"failed (syntax) syntax_error {digest}" in row_of(page, flower, digest)


def test_it_is_there_to_look_at_and_not_to_act_on(flower: Flower) -> None:
    for path in ("/api/worker/shutdown/worker-1@test", "/api/task/async-apply/refresher.refresh"):
        assert flower.ask(path, method="POST")[0] == http.client.FORBIDDEN


@pytest.mark.parametrize(
    "env",
    [
        {"FLOWER_ADDRESS": "0.0.0.0"},  # noqa: S104 - it refuses
        {"FLOWER_UNIX_SOCKET": "flower.sock"},
        {"FLOWER_UNAUTHENTICATED_API": "1"},
    ],
)
def test_it_does_not_start_where_anyone_could_get_in(system: System, tmp_path: Path, env: dict[str, str]) -> None:
    flower = Flower(system.env, tmp_path, **env)
    try:
        assert eventually(flower.process.poll, 30, "Flower has ended") == 1
    finally:
        flower.process.kill()
    log = flower.process.tail_of_log()
    assert "error: " in log
    assert "Traceback" not in log
