"""Refreshes of each reason and each outcome, made to happen for Flower to show."""

from __future__ import annotations

from functools import partial
from typing import Final

from celery import Celery

from api_client.config.broker import queues
from api_client.protocol.messages import RefreshReason, item_for
from api_client.trigger.broker import CeleryBroker
from tests.acceptance.conftest import System
from tests.acceptance.test_main_job import stale_entry
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

WORKER: Final = "worker-1@test"
PATIENT_APP: Final = "tests.support.broker_retry_app"


class Scene:
    """A system with a worker of `PATIENT_APP` and two processes, and the refreshes in it.

    ``digests`` are those of the keys, by their outcome.
    """

    def __init__(self, system: System) -> None:
        self.system, self.client = system, system.client()
        self.digests: dict[str, str] = {}

    def run(self) -> None:
        """Let a refresh end in each way; finally one is loading, one waits for its retry, two are queued."""
        self._served()
        self._refused()
        self._under_way()

    def go_on(self) -> None:
        """Let the worker take messages again, and complete the refreshes in progress."""
        self._control("add_consumer")
        self.system.open_gate("running")

    def _served(self) -> None:
        client, params = self.client, self._named("early", "popular")
        client.get("long_lived", params, timeout=MAX_WAIT_SECONDS)
        before = client.get_entry("long_lived", params).token
        self.system.make_every_draw_positive(client, "long_lived", params)
        eventually(lambda: client.get_entry("long_lived", params).token > before, "an early refresh")
        params = self._named("stale", "aged", "short_lived")
        before = stale_entry(client, params)
        eventually(lambda: client.get_entry("short_lived", params).token > before, "a stale one's")
        params = self._named("invalidated", "changed")
        before = client.get_entry("long_lived", params, timeout=MAX_WAIT_SECONDS).token
        client.invalidate("long_lived", params)
        eventually(lambda: client.get_entry("long_lived", params).token > before, "an invalidated one's")

    def _refused(self) -> None:
        client, system = self.client, self.system
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

    def _named(self, outcome: str, key: str, query: str = "long_lived") -> dict[str, str]:
        self.digests[outcome] = self.client.key(query, {"key": key}).short
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
