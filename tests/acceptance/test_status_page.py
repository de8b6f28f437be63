"""``refresher status --web`` in a real browser, beside a real worker: what it shows, and its button."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from api_client import RefreshFailed
from refresher.embedded import GuardedProcess
from refresher.flow.dead_letters import DeadLetters
from tests.acceptance.conftest import ROOT, System
from tests.contract.test_dead_letters import a_letter
from tests.support.patience import patient_environment
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PASSWORD = "a-password-of-this-test"
WAIT_MS = 1_000 * MAX_WAIT_SECONDS
MARKUP = "<img src=x onerror=\"document.title='owned'\">"


class Served:
    """The page, in a process of its own."""

    def __init__(self, system: System, folder: Path) -> None:
        self.process = GuardedProcess.start(
            [sys.executable, "-u", "-m", "refresher.cli", "status", "--web", "--port", "0", "--watch", "0.5"],
            env=patient_environment(folder, {**system.env, "REFRESHER_STATUS_PASSWORD": PASSWORD}),
            cwd=ROOT,
            log_file=folder / "page.log",
        )
        found = eventually(
            lambda: re.search(r"http://127\.0\.0\.1:\d+/", self.process.tail_of_log()), "the page is served"
        )
        self.url = found[0]


@pytest.fixture
def served(system: System, tmp_path: Path) -> Iterator[Served]:
    served = Served(system, tmp_path)
    try:
        yield served
    finally:
        served.process.kill()


class Opened:
    """The page in a browser: its requests, and its errors."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.requested: list[str] = []
        self.wrong: list[str] = []
        context = browser.new_context(
            http_credentials={"username": "refresher", "password": PASSWORD}, viewport={"width": 1300, "height": 900}
        )
        context.set_default_timeout(WAIT_MS)
        self.page = context.new_page()
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.goto(url)

    def shows(self, place: str, text: str) -> None:
        from playwright.sync_api import expect

        expect(self.page.locator(place).first).to_contain_text(text, timeout=WAIT_MS)


def test_the_status_page_shows_activity_and_retries_a_dead_letter(
    system: System, served: Served, browser: Browser, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    system.start_worker("-c", "1", CACHE_XFETCH_RETRY_ENABLED="false")
    client = system.client()
    client.get("long_lived", {"key": "well"})
    system.control.rpush("script:ill", "fail")
    with pytest.raises(RefreshFailed):
        client.get("long_lived", {"key": "ill"})
    opened = Opened(browser, served.url)
    page = opened.page
    opened.shows("#queries tr:has-text('long_lived') td:nth-child(2)", "1")
    opened.shows("#workers", "worker-1@test")
    expect(page.locator("#plots svg")).to_have_count(4, timeout=WAIT_MS)
    letter = page.locator("#letters tr", has_text=client.key("long_lived", {"key": "ill"}).short)
    expect(letter).to_contain_text("transient", timeout=WAIT_MS)

    letter.get_by_role("button", name="Retry").click()
    expect(letter).to_have_count(0, timeout=WAIT_MS)  # refreshed, so that the letter is gone
    assert system.loads("ill") == 2
    assert client.get("long_lived", {"key": "ill"})["load"] == 2
    _shows_no_markup(system, opened)
    assert opened.wrong == []
    assert [url for url in opened.requested if not url.startswith((served.url, "data:"))] == []
    _ends(system, served, tmp_path)


def _shows_no_markup(system: System, opened: Opened) -> None:
    """Plant markup in the cache: it is shown as text."""
    DeadLetters(system.cache, "cache").add(a_letter(7, kind=MARKUP, message=MARKUP))
    record = system.client().key("long_lived", {"key": "held"}).record
    system.cache.hset(record, mapping={"state": "running", "until": 2**52, "by": MARKUP})
    opened.shows("#letters", MARKUP)
    opened.shows("#runs", MARKUP)
    assert opened.page.locator("main img").count() == 0
    assert opened.page.title() == "refresher: status"


def _ends(system: System, served: Served, folder: Path) -> None:
    port = served.url.rstrip("/").rpartition(":")[2]
    second = GuardedProcess.start(
        [sys.executable, "-m", "refresher.cli", "status", "--web", "--port", port],
        env=system.env, cwd=ROOT, log_file=folder / "second.log",
    )  # fmt: skip
    assert eventually(second.poll, "the second has ended") == 1
    assert f"error: can't serve the page at 127.0.0.1:{port}" in second.tail_of_log()
    os.kill(served.process.pid, signal.SIGINT)
    eventually(lambda: served.process.poll() is not None, "it has ended")
    assert served.process.poll() == 0
    assert "Traceback" not in served.process.tail_of_log()
