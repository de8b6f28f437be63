"""Each component is broken in turn, beside a real Prometheus: only its own alerts fire, and doctor names the fault.

`make test-long` breaks everything that docs/reference/failures.md has a row for.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import pytest
import redis

from api_client import CacheClient, ReaderSettings
from api_client.protocol.keys import make_key
from refresher.embedded import ArcadeDbServer, RedisServer
from tests.acceptance.conftest import ROOT
from tests.servers.restarts import restart
from tests.support.http_requests import CannedHttpServer
from tests.support.monitored_system import MonitoredSystem, go_on, stop
from tests.support.requirements import IS_LONG
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

Change = Callable[[MonitoredSystem], object]
# Possible consequences, sooner or later, of any fault that keeps refreshes from being stored.
NOTHING_STORED: Final = frozenset(
    {
        "XFetchRefreshesWait", "XFetchNoRefreshCompletes", "XFetchRunsDoNotEnd", "XFetchAttemptsFail",
        "XFetchRefreshFailures", "XFetchDeadLetters", "XFetchQuarantinedKeys", "XFetchLeaseContention",
        "XFetchQueueNearItsBound", "CacheStampede", "CacheReadsFail",
    }
)  # fmt: skip
NO_CACHE: Final = NOTHING_STORED | {"CacheUnavailable", "XFetchTriggersFail", "RefresherNotReady"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``raises`` are the alerts that must fire, ``may`` those that may fire besides.

    ``doctor`` has the level and some words of its lines, by check. ``is_long``: tested in `make test-long` alone.
    """

    name: str
    breaks: Change
    repair: Change
    raises: frozenset[str]
    doctor: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    may: frozenset[str] = NOTHING_STORED
    is_long: bool = True


def _alerts(*names: str) -> frozenset[str]:
    return frozenset(names)


def _fill(server: str) -> Change:
    """Leave a server no memory, and nothing that it may evict."""

    def fill(system: MonitoredSystem) -> None:
        client: redis.Redis = getattr(system, server)
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)

    return fill


def _empty(server: str, policy: str) -> Change:
    def empty(system: MonitoredSystem) -> None:
        client: redis.Redis = getattr(system, server)
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", policy)

    return empty


def _restart(server: str) -> Change:
    return lambda system: restart(getattr(system, server), keep_data=False)


def _become_replica(system: MonitoredSystem) -> None:
    system.cache.execute_command("REPLICAOF", "127.0.0.1", str(system.broker_server.port))


def _become_master(system: MonitoredSystem) -> None:
    system.cache.execute_command("REPLICAOF", "NO", "ONE")
    system.cache.flushall()


def _without_right(system: MonitoredSystem) -> None:
    url = system.env["CACHE_REDIS_URL"].rpartition("@")[2]
    system.cache.execute_command(
        "ACL", "SETUSER", "weak", "on", ">weak-of-test", "~*", "&*", "+@all", "-set", "-evalsha"
    )
    changes = {"CACHE_REDIS_URL": f"redis://weak:weak-of-test@{url}"}
    system.replace_worker(**changes)
    system.env |= changes  # doctor runs as that user, too


def _with_rights(system: MonitoredSystem) -> None:
    system.env["CACHE_REDIS_URL"] = system.cache_server.url(0)
    system.replace_worker()


def _take_port(system: MonitoredSystem) -> None:
    """Run another server at the port of the worker's metrics before the worker starts."""
    system.worker.kill()
    other = ExitStack()
    other.enter_context(CannedHttpServer(["not found"], 404, port=system.ports["refresher-workers"]))
    system.gives_back = other.close
    system.worker = system.start_worker()


def _give_port_back(system: MonitoredSystem) -> None:
    system.gives_back()
    system.replace_worker()


def _overload(system: MonitoredSystem) -> None:
    """Request many more refreshes than the hung loads let through."""
    system.let_loads("hangs")
    with CacheClient(ReaderSettings.from_env(system.env)) as client:
        for number in range(200):
            client.refresh("people", {"key": f"one-of-many-{number}"})


def _again_and_again(what: Change, pause_seconds: float) -> Change:
    """Repeat a change until the fault is fixed."""

    def begin(system: MonitoredSystem) -> None:
        stopped = threading.Event()

        def go_on_with_it() -> None:
            while not stopped.wait(pause_seconds):
                what(system)

        thread = threading.Thread(target=go_on_with_it)
        thread.start()

        def give_back() -> None:
            stopped.set()
            thread.join()

        system.gives_back = give_back

    return begin


def _write_garbage(system: MonitoredSystem) -> None:
    for number in range(4):
        system.cache.set(make_key("cache", "people", {"key": f"k{number}"}, 1).entry, b"no entry at all")


def _send_garbage(system: MonitoredSystem) -> None:
    system.broker.lpush("cache.refresh", "{}")


def _give_back(system: MonitoredSystem) -> None:
    system.gives_back()


def _replace(**changes: str) -> Change:
    return lambda system: system.replace_worker(**changes)


def _loads(mode: str) -> Change:
    return lambda system: system.let_loads(mode)


def _graph(how: str) -> Change:
    return lambda system: getattr(system.graph_proxy, how)()


def _graph_again(system: MonitoredSystem) -> None:
    system.graph_proxy.passes()


FAULTS: Final = (
    Fault(
        "graph killed", _graph("refuses"), _graph_again, _alerts("RefresherNotReady"),
        {"graph": ("problem", "graph_unavailable"), "worker here": ("problem", "graph")}, is_long=False,
    ),
    Fault(
        "graph hung", _graph("hangs"), _graph_again, _alerts("RefresherNotReady"),
        {"graph": ("problem", "can't be used"), "worker here": ("problem", "graph")},
    ),
    Fault(
        "graph: wrong password", _replace(NEO4J_PASSWORD="wrong-of-test"), _replace(),
        _alerts("RefresherNotReady", "XFetchDeadLetters"), {"worker here": ("problem", "auth")},
    ),
    Fault(
        "cache killed", lambda system: system.cache_server.kill(), _restart("cache_server"),
        _alerts("RefresherNotReady", "CacheUnavailable"),
        {"cache": ("problem", "can't be used"), "worker here": ("problem", "cache")}, NO_CACHE,
    ),
    Fault(
        "cache hung", lambda system: stop(system.cache_server.pid), lambda system: go_on(system.cache_server.pid),
        _alerts("RefresherNotReady", "CacheUnavailable"), {"cache": ("problem", "did not answer in time")}, NO_CACHE,
    ),
    Fault(
        "cache full, and evicts nothing", _fill("cache"), _empty("cache", "allkeys-lru"),
        _alerts("RefresherNotReady", "XFetchTriggersFail"),
        {"eviction": ("problem", "noeviction"), "lease steps": ("problem", "maxmemory")}, NO_CACHE, is_long=False,
    ),
    Fault(
        "cache is a replica", _become_replica, _become_master, _alerts("RefresherNotReady"),
        {"cache": ("problem", "replica")}, NO_CACHE,
    ),
    Fault(
        "cache: a permission is missing", _without_right, _with_rights, _alerts("RefresherNotReady"),
        {"rights": ("problem", "evalsha"), "worker here": ("problem", "cache")}, NO_CACHE,
    ),
    Fault(
        "broker killed", lambda system: system.broker_server.kill(), _restart("broker_server"),
        _alerts("RefresherNotReady", "XFetchTriggersFail"), {"broker": ("problem", "can't be used")},
        NOTHING_STORED | {"RefresherFlowerDown"},
    ),
    Fault(
        "broker hung", lambda system: stop(system.broker_server.pid), lambda system: go_on(system.broker_server.pid),
        _alerts("RefresherNotReady", "XFetchTriggersFail"), {"broker": ("problem", "did not answer in time")},
        NOTHING_STORED | {"RefresherFlowerDown"}, is_long=False,
    ),
    Fault(
        "broker full", _fill("broker"), _empty("broker", "noeviction"),
        _alerts("RefresherNotReady", "XFetchTriggersFail"), {"broker's memory": ("problem", "full")},
        NOTHING_STORED | {"RefresherFlowerDown"},
    ),
    Fault(
        "worker killed", lambda system: system.worker.kill(), _replace(),
        _alerts("RefresherWorkerDown", "RefresherWorkerGone"), {"workers": ("problem", "none replies")},
    ),
    Fault(
        "worker stopped", lambda system: stop(system.worker.pid), lambda system: go_on(system.worker.pid),
        _alerts("RefresherWorkerDown", "RefresherWorkerGone", "XFetchRefreshesWait"),
        {"workers": ("problem", "none replies"), "worker here": ("problem", "no health")}, is_long=False,
    ),
    Fault(
        "worker without the query", _replace(REFRESHER_QUERIES=""), _replace(),
        _alerts("RefresherWithoutQueries", "XFetchDeadLetters"), {"dead letters": ("warning", "unknown_query")},
    ),
    Fault(
        "worker of another namespace", _replace(CACHE_NAMESPACE="other"), _replace(), _alerts("XFetchRefreshesWait"),
        {"workers": ("problem", "none consumes")},
    ),
    Fault(
        "worker's metrics port is taken", _take_port, _give_port_back,
        _alerts("RefresherWorkerDown", "RefresherWorkerGone"), {"metrics here": ("warning", "is not a worker")},
    ),
    Fault(
        "loads always fail", _loads("fails"), _loads(""), _alerts("XFetchDeadLetters"),
        {"dead letters": ("warning", "loader_error")}, is_long=False,
    ),
    Fault(
        "values are too large", _loads("too large"), _loads(""), _alerts("XFetchDeadLetters"),
        {"dead letters": ("warning", "too_large")},
    ),
    Fault(
        "loads do not end", _loads("hangs"), _loads(""), _alerts("XFetchRunsDoNotEnd"),
        {"refreshes": ("warning", "")},
    ),
    Fault(
        "queue is overloaded", _overload, _loads(""), _alerts("XFetchQueueNearItsBound"),
        {"broker": ("warning", "early ones are dropped")},
    ),
    Fault(
        "foreign messages", _again_and_again(_send_garbage, 0.3), _give_back,
        _alerts("RefresherMessagesDropped"), {"metrics here": ("warning", "messages rejected")}, frozenset(),
    ),
    Fault(
        "foreign entries", _again_and_again(_write_garbage, 0.05), _give_back, _alerts("CacheUnreadable"),
        {"entries": ("warning", "garbage")},
    ),
    Fault(
        "readers of another namespace", lambda system: system.replace_reader(CACHE_NAMESPACE="theirs"),
        lambda system: system.replace_reader(), _alerts("XFetchRefreshesWait"), {},
    ),
    Fault(
        "reader killed", lambda system: system.reader.kill(), lambda system: system.replace_reader(),
        _alerts("CacheReaderDown"), {"readers": ("warning", "none is connected")}, frozenset(),
    ),
    Fault(
        "Flower killed", lambda system: system.flower.process.kill(), lambda system: system.restart_flower(),
        _alerts("RefresherFlowerDown"), {}, frozenset(),
    ),
)  # fmt: skip
TRIED = [
    pytest.param(fault, id=fault.name, marks=pytest.mark.long if fault.is_long else pytest.mark.longer)
    for fault in FAULTS
]


@pytest.fixture(scope="module")
def system(
    arcadedb: ArcadeDbServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MonitoredSystem]:
    """One system for all faults: each is fixed before the next."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("plant")
        system = MonitoredSystem(stack, arcadedb, redis_server, folder, with_flower=IS_LONG)
        eventually(lambda: system.prometheus.query('sum(cache_hit_total{query="people"}) > 0'), "it is read")
        yield system


@pytest.mark.promise("Contract and operation", "A fault raises its alerts, and `doctor` names it")
@pytest.mark.timeout(4 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize("fault", TRIED)
def test_a_fault_raises_only_its_own_alerts_and_doctor_names_it(system: MonitoredSystem, fault: Fault) -> None:
    wait(system, lambda: is_well(system), "all is well before")
    fault.breaks(system)
    try:
        wait(system, lambda: has_alerts_of(system, fault), "its alerts fire")
        wait(system, lambda: is_reported_by_doctor(system, fault), "doctor reports it")
    finally:
        fault.repair(system)
    wait(system, lambda: is_well(system), "all is well again")


def wait(system: MonitoredSystem, condition: Callable[[], bool], what: str) -> None:
    """Wait; add the alerts and doctor's findings to the error of a timeout."""
    try:
        eventually(condition, what)
    except AssertionError as error:
        error.add_note(f"alerts: {sorted(system.prometheus.firing())}")
        error.add_note(f"doctor: {system.doctor()}")
        raise


def is_well(system: MonitoredSystem) -> bool:
    """Return whether no alert fires. Dead letters are dropped: a load that began before the fix may fail, too."""
    firing = system.prometheus.firing()
    if "XFetchDeadLetters" in firing:
        system.forget_failures()
    return not firing


def has_alerts_of(system: MonitoredSystem, fault: Fault) -> bool:
    """Return whether all alerts of the fault fire, and no unrelated one."""
    firing = system.prometheus.firing()
    return fault.raises <= firing <= fault.raises | fault.may


def is_reported_by_doctor(system: MonitoredSystem, fault: Fault) -> bool:
    """Return whether doctor has a line on the fault, and exits accordingly."""
    said = system.doctor()
    is_problem = any(level == "problem" for level, _ in fault.doctor.values())
    return (not is_problem or said.exit_code == 1) and all(
        said.findings.get(check, ("", ""))[0] == level and words in said.findings[check][1]
        for check, (level, words) in fault.doctor.items()
    )


def test_each_fault_is_documented_with_its_alerts() -> None:
    page = (ROOT / "docs" / "reference" / "failures.md").read_text(encoding="utf-8")
    table = page.split("\n## How a fault is reported\n")[1]
    rows = {
        name: (alerts, checks)
        for name, alerts, checks in re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|", table, re.MULTILINE)
    }
    for fault in FAULTS:
        alerts, checks = rows[fault.name]
        assert fault.raises <= set(re.findall(r"`(\w+)`", alerts)), fault.name
        assert set(fault.doctor) - {"worker here"} <= set(re.findall(r"`([^`]+)`", checks)), fault.name
