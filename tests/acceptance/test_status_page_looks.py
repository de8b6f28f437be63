"""The status page in a real browser, whatever there is to show: nothing, much, long names, unreachable servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import sin
from typing import TYPE_CHECKING, Any

import pytest
import redis

from api_client.config.settings import ReaderSettings
from refresher.embedded import RedisServer
from refresher.feed.state import FeedState
from refresher.flow.dead_letters import DeadLetters
from refresher.ops.broker import Queues, WorkerSeen
from refresher.ops.scan import KeysSeen, QueryKeys, Run
from refresher.ops.status import DeadSeen, Status
from refresher.web.api import StatusApi
from refresher.web.history import History, sample_of
from refresher.web.server import StatusServer
from tests.contract.test_dead_letters import a_letter
from tests.support.pictures import photograph
from tests.support.waiting import MAX_WAIT_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PASSWORD = "a-password-of-this-test"
WAIT_MS = 1_000 * MAX_WAIT_SECONDS
LOOKS, LOOK_SECONDS, BEGAN_AT = 90, 5, 1_790_000_000
NAMES = ("friends_of", "paths_between", "recommended", "reachable")
MANY = (*(f"query_{number:02}" for number in range(48)), "q" * 100, "a.very.long_name-" * 5)
WIDTHS = (1300, 1100, 390)
AWAY = "the cache at CACHE_REDIS_URL=redis://:**@127.0.0.1:6379/0 can't be queried: Connection refused"
BROKER_AWAY = "at CACHE_BROKER_URL=amqp://reader:**@broker:5672// can't be queried: ConnectionRefusedError"
# Tables that are wider than their card: the last columns are out of sight.
CUT_OFF = """() => [...document.querySelectorAll(".wide")].filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => `${one.firstElementChild.id} ${one.scrollWidth} > ${one.clientWidth}`)"""
# Texts whose colour does not stand out from what is behind it (WCAG 2.1, AA: 4.5 to 1).
FAINT_TEXTS = """() => {
  const rgb = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = rgb(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const said = [...document.querySelectorAll("body *")].filter((one) => !one.disabled && one.checkVisibility()
    && [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()));
  return said.filter((one) => {
    const style = getComputedStyle(one);
    const both = [light(rgb(one instanceof SVGElement ? style.fill : style.color)), light(behind(one))];
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05) < 4.5;
  }).map((one) => one.textContent);
}"""


def busy(names: tuple[str, ...], look: int) -> Status:
    """Return one of a series of snapshots of a busy system."""
    keys = KeysSeen(keys_of_server=40 * len(names))
    for number, name in enumerate(names):
        wave = sin(look / 7 + number)
        keys.queries[name] = QueryKeys(
            name, keys=83 - number, headers=83 - number, stale=max(0, round(9 * wave)),
            oldest_stale=max(0.0, 30 * wave), lead=0.11 * (number % 7 + 1) + 0.01 * wave,
            queued=max(0, round(3 * wave)), running=int(wave > 0.6), retrying=int(wave > 0.9),
            cooling=number % 3, longest_wait=2.5 if wave > 0.2 else None,
        )  # fmt: skip
    keys.runs = [Run(names[-1], "3f2a9c0d1e2f", "refresh@a-rather-long-host-name.example.org:41733", 12.5)]
    taken = {name: 1_234 * (number + 1) for number, name in enumerate(names)}
    wave = abs(sin(look / 5))
    feed = FeedState(
        "a-rather-long-host-name.example.org:41733", round(120 * wave), 0.9 * wave, 0.03 + 0.01 * wave, 0.1 + wave / 5,
        ("Person", "Company", "KNOWS", "WORKS_AT"),
    )  # fmt: skip
    return Status(
        at=BEGAN_AT + LOOK_SECONDS * look, keys=keys, dead=DeadSeen({names[0]: 2}, {names[0]: 1}),
        queues=Queues(refresh=max(0, round(40 * sin(look / 9))), miss=look % 3),
        workers=[WorkerSeen("refresh@a-rather-long-host-name.example.org", "prefork", 4, taken, 86_400)], problems={},
        feed=feed,
    )  # fmt: skip


def empty(look: int) -> Status:
    at = BEGAN_AT + LOOK_SECONDS * look
    keys = KeysSeen(keys_of_server=0)
    return Status(at, keys, DeadSeen(), Queues(0, 0), [], {})


def cache_away(look: int) -> Status:
    problems = {"keys": AWAY, "dead": AWAY, "feed": AWAY}
    return Status(BEGAN_AT + LOOK_SECONDS * look, None, None, Queues(3, 1), busy(NAMES, look).workers, problems)


def broker_away(look: int) -> Status:
    seen = busy(NAMES, look)
    problems = {"queues": f"the broker {BROKER_AWAY}", "workers": f"the workers of the broker {BROKER_AWAY}"}
    return Status(seen.at, seen.keys, seen.dead, None, None, problems)


@contextmanager
def shown(browser: Browser, cache: RedisServer, look: Callable[[int], Status]) -> Iterator[Page]:
    """Open the page of a series of such snapshots in a browser; its errors fail the test at the end."""
    settings = ReaderSettings.from_env({"CACHE_REDIS_URL": cache.url(0), "CACHE_BROKER_URL": cache.url(1)})
    history = History(lambda: look(LOOKS), every_seconds=600)
    samples = [sample_of(look(number)) for number in range(LOOKS)]
    history.since = lambda at: [sample for sample in samples if sample["at"] > at]  # type: ignore[method-assign]
    history.latest = look(LOOKS - 1)
    server = StatusServer(("127.0.0.1", 0), StatusApi(settings, history), PASSWORD)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    context = browser.new_context(http_credentials={"username": "refresher", "password": PASSWORD})
    context.set_default_timeout(WAIT_MS)
    page, wrong = context.new_page(), list[str]()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    try:
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.locator("#plots svg").nth(3).wait_for()
        yield page
        assert wrong == []
    finally:
        context.close()
        server.shutdown()
        thread.join()
        server.server_close()


def looks_right(page: Page, name: str) -> None:
    """Check the page in both schemes and widths: nothing overflows it, and all of it can be read."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            photograph(page, f"status-{name}-{scheme}-{width}", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(CUT_OFF) == [], f"at {width} px"
            assert page.evaluate(FAINT_TEXTS) == []


def test_the_status_page_of_an_empty_system(browser: Browser, clean_redis: RedisServer) -> None:
    with shown(browser, clean_redis, empty) as page:
        looks_right(page, "empty")
        assert page.locator("#queries").inner_text() == "no keys in the cache"
        assert page.locator("#workers").inner_text() == "none replies: nothing is refreshed"
        assert page.locator("#feed").inner_text() == "off"
        assert page.locator("#plots figure").count() == 4
        assert page.locator("#letters").inner_text() == "none"
        assert page.locator("#problems").is_hidden()


def test_the_status_page_of_a_busy_system_is_usable_by_keyboard(browser: Browser, clean_redis: RedisServer) -> None:
    with redis.Redis.from_url(clean_redis.url(0)) as client:
        letters = DeadLetters(client, "cache")
        letters.add(
            a_letter(
                7,
                at_us=BEGAN_AT * 1_000_000,
                query=NAMES[0],
                message="TransientFailure: the transaction took longer than 27 s",
            )
        )
        letters.add(a_letter(8, at_us=BEGAN_AT * 1_000_000, digest="b", query=NAMES[1], params=None, message=None))
    with shown(browser, clean_redis, lambda look: busy(NAMES, look)) as page:
        buttons = page.locator("#letters button")
        buttons.nth(1).wait_for()
        looks_right(page, "busy")
        assert [one.inner_text() for one in page.locator("#legend li").all()] == sorted(NAMES)
        retry = page.get_by_role("button", name=f"Retry {NAMES[0]}")
        assert page.get_by_role("button", name=f"Retry {NAMES[1]}").is_disabled()  # its params are not kept
        for _ in range(20):
            page.keyboard.press("Tab")
            if retry.evaluate("one => one === document.activeElement"):
                break
        assert retry.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
        names = page.locator("table").evaluate_all(
            "all => all.map((one) => one.ariaLabelledByElements?.[0].textContent)"
        )
        assert names == ["By query", "Dead letters", "Running loads", "Change feed", "Workers"]
        assert page.locator("#plots figure").count() == 5


def test_the_status_page_fits_fifty_queries_and_names_of_maximum_length(
    browser: Browser, clean_redis: RedisServer
) -> None:
    with redis.Redis.from_url(clean_redis.url(0)) as client:
        DeadLetters(client, "cache").add(a_letter(7, query=MANY[-2], message="m" * 400))
    with shown(browser, clean_redis, lambda look: busy(MANY, look)) as page:
        page.locator("#letters button").wait_for()
        looks_right(page, "many")
        assert page.locator("#queries tr").count() == 1 + len(MANY)
        assert page.locator("#legend li").count() == 7
        assert page.locator("#legend .rest").inner_text() == "the 6 busiest of 50 queries"
        assert page.locator("#plots figure:first-child path").count() == 6


@pytest.mark.parametrize(
    ("look", "problems", "places"),
    [
        pytest.param(cache_away, [AWAY], {"queries": "unknown", "runs": "unknown"}, id="cache"),
        pytest.param(
            broker_away, [f"the broker {BROKER_AWAY}", f"the workers of the broker {BROKER_AWAY}"],
            {"workers": "unknown"}, id="broker",
        ),
    ],
)  # fmt: skip
def test_the_status_page_reports_an_unreachable_cache_or_broker(
    browser: Browser, clean_redis: RedisServer, look: Any, problems: list[str], places: dict[str, str]
) -> None:
    with shown(browser, clean_redis, look) as page:
        looks_right(page, look.__name__.replace("_", "-"))
        assert [one.inner_text() for one in page.locator("#problems li").all()] == problems
        assert {place: page.locator(f"#{place}").inner_text() for place in places} == places


def test_the_status_page_reports_that_its_own_server_is_gone(browser: Browser, clean_redis: RedisServer) -> None:
    with shown(browser, clean_redis, empty) as page:
        page.evaluate("asked = window.fetch; window.fetch = () => Promise.reject(new TypeError()); poll()")
        assert page.locator("#problems").inner_text() == "The page's server does not answer: this page is outdated."
        page.evaluate("window.fetch = asked; poll()")
        assert page.locator("#problems").is_hidden()
