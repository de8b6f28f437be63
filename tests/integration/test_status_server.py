"""The status page's server: each path requires the password, and only the page can trigger a retry."""

from __future__ import annotations

import base64
import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from api_client.config.settings import ReaderSettings
from refresher.embedded import RedisServer
from refresher.flow.dead_letters import DeadLetters
from refresher.ops.status import StatusPoller
from refresher.web.api import StatusApi
from refresher.web.history import History
from refresher.web.server import CSRF_HEADER, USER, StatusServer
from tests.contract.test_dead_letters import a_letter
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

PASSWORD = "a-password-of-this-test"
pytestmark = pytest.mark.usefixtures("no_worker_is_waited_for", "patient_commands")


class Page:
    """A served page, and requests to it."""

    def __init__(self, server: StatusServer) -> None:
        self.port, self.origin = server.server_port, f"http://127.0.0.1:{server.server_port}"

    def fetch(
        self, path: str, body: Any = None, *, credentials: str | bytes | None = f"{USER}:{PASSWORD}", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        if credentials is not None:
            coded = base64.b64encode(credentials.encode() if isinstance(credentials, str) else credentials)
            headers["Authorization"] = f"Basic {coded.decode()}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=MAX_WAIT_SECONDS)
        try:
            method = "GET" if body is None else "POST"
            sent = body if body is None or isinstance(body, str) else json.dumps(body)
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def poll(self, since: float = 0.0) -> dict[str, Any]:
        status, _, body = self.fetch(f"/status.json?since={since}")
        assert status == http.client.OK
        record: dict[str, Any] = json.loads(body)
        return record

    def token(self) -> str:
        found = re.search(rb'name="refresher-token" content="([^"]+)"', self.fetch("/")[2])
        assert found
        return found[1].decode()


@contextmanager
def served(**env: str) -> Iterator[Page]:
    settings = ReaderSettings.from_env(env)
    history = History(StatusPoller(settings).poll, every_seconds=0.2)
    server = StatusServer(("127.0.0.1", 0), StatusApi(settings, history), PASSWORD)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    history.start()
    thread.start()
    try:
        yield Page(server)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        history.close()
        eventually(lambda: "history" not in {each.name for each in threading.enumerate()}, "its last poll has ended")


@pytest.fixture
def page(clean_redis: RedisServer) -> Iterator[Page]:
    with served(CACHE_REDIS_URL=clean_redis.url(0), CACHE_BROKER_URL=clean_redis.url(1)) as one:
        yield one


def test_every_path_requires_the_password(page: Page) -> None:
    strangers = (
        None, "", ":", f"{USER}:", f"{USER}:{PASSWORD} ", f"other:{PASSWORD}", f"{USER}:{PASSWORD[:-1]}",
        f"{USER}:pässwörd", b"\xff\xfe:\x00",
    )  # fmt: skip
    for path, body in (("/", None), ("/page.js", None), ("/status.json", None), ("/retry", {"ids": ["x"]})):
        for credentials in strangers:
            status, headers, said = page.fetch(path, body, credentials=credentials)
            assert (status, headers["WWW-Authenticate"].partition(" ")[0]) == (http.client.UNAUTHORIZED, "Basic")
            assert b"refresher-token" not in said
    for header in ("Basic", "Basic !", "Bearer x", "Basic " + "ä"):
        assert page.fetch("/", credentials=None, Authorization=header)[0] == http.client.UNAUTHORIZED


def test_the_page_and_its_files_are_served_and_may_load_nothing_from_other_sites(page: Page) -> None:
    for path, begins in (("/", b"<!doctype html>"), ("/page.css", b":root"), ("/page.js", b'"use strict"')):
        status, headers, body = page.fetch(path)
        assert (status, body.startswith(begins)) == (http.client.OK, True)
        assert headers["Server"] == "refresher"
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert b"://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
    assert page.fetch("/other")[0] == http.client.NOT_FOUND


def test_a_retry_requires_the_token_and_the_origin_of_the_page(page: Page, clean_redis: RedisServer) -> None:
    with redis.Redis.from_url(clean_redis.url(0)) as client:
        DeadLetters(client, "cache").add(a_letter(7, params=None))
    token, ids = page.token(), {"ids": ["7-aaaaaaaa", "8-bbbbbbbb"]}
    assert page.fetch("/retry", ids)[0] == http.client.FORBIDDEN
    assert page.fetch("/retry", ids, **{CSRF_HEADER: token + "x"})[0] == http.client.FORBIDDEN
    assert (
        page.fetch("/retry", ids, **{CSRF_HEADER: token, "Origin": "http://evil.example"})[0] == http.client.FORBIDDEN
    )
    assert page.fetch("/retry", ids, **{CSRF_HEADER: token, "Origin": "null"})[0] == http.client.FORBIDDEN
    assert page.fetch("/retry")[0] == http.client.NOT_FOUND
    status, _, body = page.fetch("/retry", ids, **{CSRF_HEADER: token, "Origin": page.origin})
    assert status == http.client.OK
    results = {one["id"]: one["result"] for one in json.loads(body)["results"]}
    assert results == {"7-aaaaaaaa": "params not kept", "8-bbbbbbbb": "gone"}


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", '{"ids": []}', '{"ids": [1]}', '{"ids": "x"}'])
def test_an_invalid_retry_body_is_refused(page: Page, body: str) -> None:
    assert page.fetch("/retry", body, **{CSRF_HEADER: page.token()})[0] == http.client.BAD_REQUEST


def test_a_retry_body_that_is_too_large_is_refused_unread(page: Page) -> None:
    token = page.token()
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=MAX_WAIT_SECONDS)
    coded = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    connection.putrequest("POST", "/retry")
    for name, value in (("Authorization", f"Basic {coded}"), (CSRF_HEADER, token), ("Content-Length", str(10**12))):
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == http.client.BAD_REQUEST
    connection.close()


def test_samples_are_kept_and_sent_once(page: Page) -> None:
    eventually(lambda: len(page.poll()["samples"]) >= 2, "two polls")
    samples = page.poll()["samples"]
    assert [one["at"] for one in samples] == sorted(one["at"] for one in samples)
    assert samples[0]["totals"] == {"background refreshes": 0, "blocking refreshes": 0, "dead keys": 0}
    assert all(one["at"] > samples[0]["at"] for one in page.poll(samples[0]["at"])["samples"])
    assert page.fetch("/status.json?since=x")[0] == http.client.OK


def test_without_the_cache_the_page_reports_the_problem_and_recovers(clean_redis: RedisServer) -> None:
    url = clean_redis.url(0)
    with (
        FaultProxy.before(url) as proxy,
        served(CACHE_REDIS_URL=proxy.url(url), CACHE_BROKER_URL=clean_redis.url(1)) as page,
    ):
        token = page.token()
        eventually(lambda: page.poll()["status"], "a poll")
        proxy.refuses()
        eventually(lambda: "keys" in page.poll()["status"]["problems"], "the problem is reported")
        eventually(
            lambda: page.poll()["letters_problem"].startswith("the cache can't be queried"), "for dead letters, too"
        )
        polled = page.poll()
        assert polled["samples"][-1]["totals"]["background refreshes"] == 0
        status, _, body = page.fetch("/retry", {"ids": ["7-a"]}, **{CSRF_HEADER: token})
        assert (status, json.loads(body)) == (
            http.client.SERVICE_UNAVAILABLE, {"error": "cache or broker can't be used"},
        )  # fmt: skip
        assert clean_redis.password not in json.dumps(polled)
        proxy.passes()
        eventually(lambda: not page.poll()["status"]["problems"], "the problem is gone")
