"""A worker's metrics in Prometheus: counted over all processes of its pool, without the gauges of dead ones."""

from __future__ import annotations

import urllib.request
from urllib.error import URLError

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api_client import RefreshFailed
from refresher.embedded.ports import free_port
from tests.acceptance.conftest import System
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


def scraped(port: int) -> dict[tuple[str, ...], float]:
    """Name and values of the labels, in the labels' order, to the value; {} while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=MAX_WAIT_SECONDS) as reply:
            text = reply.read().decode()
    except URLError:
        return {}
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_commits_retries_and_failures_of_all_processes_are_counted(system: System, pool: str) -> None:
    port = free_port()
    system.start_worker("-P", pool, CACHE_METRICS_PORT=str(port), CACHE_XFETCH_RETRY_MAX="1")
    client = system.client()
    system.broker.lpush("cache.refresh", "{}")  # a malformed message
    for key in ("a", "b", "c"):
        client.get("long_lived", {"key": key})
    system.control.rpush("script:retried", "fail")
    client.get("long_lived", {"key": "retried"})
    system.control.rpush("script:failing", "fail", "fail")
    with pytest.raises(RefreshFailed):
        client.get("long_lived", {"key": "failing"})

    eventually(lambda: scraped(port).get(("xfetch_active_refreshes", "long_lived")) == 0, "all runs have ended")
    found = scraped(port)
    assert found["xfetch_refresh_completed_total", "long_lived"] == 4
    assert found["xfetch_refresh_duration_seconds_count", "long_lived"] == 4
    assert found["xfetch_refresh_lead_seconds_count", "long_lived"] == 4
    assert (
        found["xfetch_refresh_lead_seconds_sum", "long_lived"]
        >= found["xfetch_refresh_duration_seconds_sum", "long_lived"]
    )
    assert found["xfetch_refresh_retried_total", "transient", "long_lived"] == 2
    assert found["xfetch_refresh_failed_total", "transient", "long_lived"] == 1
    assert sum(value for (name, *_), value in found.items() if name == "refresher_messages_dropped_total") == 1
    assert found["xfetch_refresh_queue_size",] == 0
    assert found["xfetch_dead_letters", "long_lived"] == 1
    assert found["xfetch_quarantined_keys", "long_lived"] == 0
    assert found["xfetch_query_ttl_seconds", "long_lived"] == found["xfetch_query_grace_seconds", "long_lived"] == 3600


def test_without_cache_and_broker_a_scrape_omits_only_their_gauges(system: System) -> None:
    port = free_port()
    system.start_worker(CACHE_METRICS_PORT=str(port))
    assert system.client().get("long_lived", {"key": "a"})["load"] == 1
    eventually(lambda: scraped(port).get(("xfetch_refresh_completed_total", "long_lived")) == 1, "it is counted")
    assert ("xfetch_dead_letters", "long_lived") in scraped(port)
    system.redis_server.kill()
    found = scraped(port)
    assert found["xfetch_refresh_completed_total", "long_lived"] == 1
    assert found["xfetch_query_ttl_seconds", "long_lived"] == 3600
    assert ("xfetch_dead_letters", "long_lived") not in found
    assert ("xfetch_refresh_queue_size",) not in found


def test_a_killed_run_is_no_longer_counted_and_only_the_main_process_serves_metrics(system: System) -> None:
    port = free_port()
    worker = system.start_worker("-c", "1", CACHE_METRICS_PORT=str(port))
    client = system.client()
    client.refresh("long_lived", {"key": "a", "hold": "gate"})
    eventually(lambda: scraped(port).get(("xfetch_active_locks", "long_lived")) == 1, "it runs")
    (child,) = psutil.Process(worker.pid).children()
    assert port not in {link.laddr.port for link in child.net_connections() if link.status == psutil.CONN_LISTEN}
    child.kill()
    eventually(lambda: scraped(port).get(("xfetch_active_locks", "long_lived"), 0) == 0, "it is no longer counted")


def test_the_run_of_a_killed_worker_is_counted_by_the_worker_that_takes_it_over(system: System) -> None:
    lost = system.start_worker("-P", "solo", STAMPEDE_LOCK_TIMEOUT_MS="1s")
    client, held = system.client(), {"key": "a", "hold": "gate"}
    client.refresh("long_lived", held)
    eventually(lambda: system.loads("a") == 1, "it runs")
    lost.kill()
    system.open_gate("gate", 2)
    port = free_port()
    system.start_worker("-P", "solo", CACHE_METRICS_PORT=str(port))
    eventually(lambda: client.get("long_lived", held, default=None), "it is loaded after all")
    assert scraped(port)["xfetch_refresh_retried_total", "taken_over", "long_lived"] == 1


def test_a_worker_whose_metrics_port_is_taken_logs_it_and_refreshes(system: System) -> None:
    port = free_port()
    system.start_worker(CACHE_METRICS_PORT=str(port))
    second = system.start_worker(CACHE_METRICS_PORT=str(port))
    assert f"no metrics at 127.0.0.1:{port}: [Errno 98]" in second.log_file.read_text()
    assert system.client().get("long_lived", {"key": "a"})["load"] == 1


def test_a_worker_listens_on_no_port_unless_one_is_set(system: System) -> None:
    worker = system.start_worker()
    family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
    assert [link for one in family for link in one.net_connections() if link.status == psutil.CONN_LISTEN] == []
