"""`refresher dev` as a developer uses it: started, read from another process, its file edited, ended."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.processes import addresses_beyond_loopback, shown_in_process_list
from tests.support.waiting import MAX_WAIT_SECONDS
from tests.support.watched_command import READY, Dev, names_in

MODULE = """
from refresher import query


@query("friends_of", ttl="5m", grace="1h", tags=["people"])
def friends_of(tx, person_id: int) -> list[str]:
    return tx.run("MATCH (:Person {id: $id})--(f) RETURN f.name ORDER BY f.name", id=person_id).value()
"""
READ = 'from api_client import get_cached; print(get_cached("friends_of", {"person_id": 42}, timeout="60s"))'
COMMAND = """
import sys
from refresher.cli import main

sys.argv, sys.dont_write_bytecode = ["refresher", "{}", "--json"], True
main()
"""


def edit(dev: Dev, change: Callable[[str], str]) -> None:
    path = dev.folder / "my_queries.py"
    path.write_text(change(path.read_text()))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Dev]]:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "my_queries.py").write_text(MODULE)
    running: list[Dev] = []

    def start(*arguments: str) -> Dev:
        running.append(Dev(tmp_path, *arguments))
        return running[-1]

    yield start
    for dev in running:
        dev.kill(MAX_WAIT_SECONDS)


@pytest.mark.timeout(4 * MAX_WAIT_SECONDS)
def test_dev_reloads_a_value_when_its_query_is_edited_and_leaves_nothing_after_ctrl_c(
    started: Callable[..., Dev],
) -> None:
    dev = started("my_queries", "--sample")
    dev.wait_for(READY)
    assert "queries: friends_of" in dev.out
    assert dev.run(READ) == "['Ada', 'Grace']"
    assert json.loads(dev.run(COMMAND.format("health")))["ok"]
    found = {one["check"]: one for one in json.loads(dev.run(COMMAND.format("doctor")))["findings"]}
    assert (found["tags"]["level"], found["worker here"]["level"]) == ("ok", "ok"), found
    assert "1 seen" in found["tags"]["said"]
    urls = [process.environ().get("CACHE_REDIS_URL", "") for process in dev.processes()]
    passwords = {urlsplit(url).password for url in urls} - {None}
    assert len(passwords) == 1
    assert [shown_in_process_list(str(password)) for password in passwords] == [[]]
    assert [address for process in dev.processes() for address in addresses_beyond_loopback(process.pid)] == []

    (dev.folder / "beside.py").write_text("a file that the worker does not import")
    edit(dev, lambda text: text.replace("ORDER BY f.name", "ORDER BY f.name DESC"))
    dev.wait_for("\nready\n")
    assert dev.run(READ) == "['Grace', 'Ada']", "without waiting for the TTL"
    assert "beside.py" not in dev.out
    (dev.folder / "beside.py").unlink()

    edit(dev, lambda text: text + "(")
    dev.wait_for("the worker has ended; it is started again when a file changes")
    assert "SyntaxError" in dev.out
    edit(dev, lambda text: text.removesuffix("("))
    dev.wait_for("\nready\n", times=2)
    assert dev.run(READ) == "['Grace', 'Ada']"
    assert dev.end_by(signal.SIGINT) == 0
    assert names_in(dev.folder) == ["my_queries.py"]
    assert dev.out.endswith("stopped; everything was removed\n")


@pytest.mark.promise("Contract and operation", "`refresher dev` leaves nothing behind, however it ends")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_dev_leaves_nothing_behind_after_sigterm_or_sigkill(
    started: Callable[..., Dev], number: signal.Signals
) -> None:
    dev = started("my_queries")
    dev.wait_for(READY)
    assert dev.end_by(number) == {signal.SIGTERM: 0, signal.SIGKILL: -signal.SIGKILL}[number]
