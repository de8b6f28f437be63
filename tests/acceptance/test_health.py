"""A worker's health probes, while cache, broker and graph fail and return, and while it hangs or stops."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psutil
import pytest
from celery import Celery
from typer.testing import CliRunner

from refresher.cli.commands import app
from refresher.embedded import GuardedProcess, free_port
from tests.acceptance.conftest import System
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

VARIABLES = {"cache": "CACHE_REDIS_URL", "broker": "CACHE_BROKER_URL", "graph": "NEO4J_URI"}
WELL = {"consumer": "ok", "cache": "ok", "broker": "ok", "graph": "ok"}


class Proxied:
    """A system whose worker reaches cache, broker and graph through one proxy each, and has a health port."""

    def __init__(self, system: System, stack: ExitStack) -> None:
        self.system, self.port = system, free_port()
        self.proxies = {
            name: stack.enter_context(FaultProxy.before(system.env[variable])) for name, variable in VARIABLES.items()
        }
        self.changes = {
            "CACHE_HEALTH_PORT": str(self.port),
            **{variable: self.proxies[name].url(system.env[variable]) for name, variable in VARIABLES.items()},
        }

    def start(self, pool: str, **options: Any) -> GuardedProcess:
        return self.system.start_worker(
            "-P", pool, "-c", "1", app="tests.support.hanging_app", **{**self.changes, **options}
        )

    def fetch(self, path: str) -> tuple[int, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=MAX_WAIT_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())["checks"]
        except OSError:
            return 0, {}
        finally:
            connection.close()

    def command_result(self, option: str) -> tuple[int, bool]:
        said = CliRunner().invoke(app, ["health", option, "--json"], env=self.changes)
        return said.exit_code, json.loads(said.stdout)["ok"]

    def wrong(self) -> set[str]:
        """What keeps the worker from being ready."""
        status, checks = self.fetch("/ready")
        assert (status == http.client.OK) == (checks == WELL)
        return {name for name, said in checks.items() if said != "ok"} if status else {"the port"}

    def is_live(self) -> bool:
        return self.fetch("/live")[0] == http.client.OK


@pytest.fixture
def proxied(system: System) -> Iterator[Proxied]:
    with ExitStack() as stack:
        yield Proxied(system, stack)


def test_a_worker_is_ready_only_while_cache_broker_and_graph_are_reachable(proxied: Proxied) -> None:
    worker = proxied.start("prefork")
    eventually(lambda: proxied.wrong() == set(), "it is ready")
    (child,) = psutil.Process(worker.pid).children()
    assert proxied.port not in {
        link.laddr.port for link in child.net_connections() if link.status == psutil.CONN_LISTEN
    }
    for name, fault, expected in (
        ("cache", "refuses", {"cache"}),
        ("graph", "hangs", {"graph"}),
        ("broker", "refuses", {"broker", "consumer"}),
    ):
        getattr(proxied.proxies[name], fault)()
        eventually(lambda: proxied.wrong() == expected, f"the {name} is reported as missing")  # noqa: B023
        assert proxied.is_live()
        checks = proxied.fetch("/ready")[1]
        secrets = (proxied.system.redis_server.password, proxied.system.env["NEO4J_PASSWORD"])
        assert not any(secret in said for said in checks.values() for secret in secrets)
        proxied.proxies[name].passes()
        eventually(lambda: proxied.wrong() == set(), f"the {name} is there again")
    _stops(proxied, worker.pid)


def _stops(proxied: Proxied, pid: int) -> None:
    """Stop the worker while a load is running."""
    proxied.system.client().refresh("long_lived", {"key": "a", "hold": "gate"})
    eventually(lambda: proxied.system.loads("a") == 1, "it loads")
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: proxied.fetch("/ready")[1].get("consumer") == "consumes no messages: stopping", "it stops")
    assert proxied.is_live()
    proxied.system.open_gate("gate")


def test_a_worker_waiting_for_its_broker_is_live_and_one_with_a_hanging_loop_is_not(proxied: Proxied) -> None:
    proxied.proxies["broker"].refuses()
    proxied.start("solo", ready=False, TEST_STUCK_SECONDS="5")
    eventually(lambda: proxied.wrong() == {"consumer", "broker"}, "it reports the missing broker")
    eventually(lambda: proxied.command_result("--live") == (0, True), "it is live")
    assert proxied.command_result("--ready") == (1, False)
    proxied.proxies["broker"].passes()
    eventually(lambda: proxied.wrong() == set(), "it is ready")
    _hangs(proxied)


def _hangs(proxied: Proxied) -> None:
    proxied.system.until_commands_are_taken()
    with Celery(broker=proxied.system.env["CACHE_BROKER_URL"], set_as_current=False) as sender:
        sender.control.broadcast("hang")
    eventually(lambda: proxied.system.control.llen("hangs"), "its loop is held up")
    eventually(lambda: proxied.fetch("/live")[0] == http.client.SERVICE_UNAVAILABLE, "it is not live")
    assert "has been stuck" in proxied.fetch("/live")[1]["consumer"]
    eventually(lambda: "consumer" in proxied.wrong(), "nor ready")
    proxied.system.open_gate("loop")
    eventually(proxied.is_live, "it is live again")
