"""`refresher demo` as a newcomer runs it: a process, watched from outside."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.processes import addresses_beyond_loopback, shown_in_process_list
from tests.support.waiting import MAX_WAIT_SECONDS, eventually
from tests.support.watched_command import WatchedCommand

ROOT = Path(__file__).parents[2]
SMALL = ("--persons", "100")  # loaded in a blink


class Demo(WatchedCommand):
    """A running demo."""

    def __init__(self, folder: Path, *args: str, **environ: str) -> None:
        super().__init__(folder, ROOT, "demo", *args, **environ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(MAX_WAIT_SECONDS)

    def wait_for(self, words: str) -> str:
        """Return all that was printed, once ``words`` (a regular expression) are among it."""
        return self.wait_for_output(lambda: self.out if re.search(words, self.out) else "", words)

    def ended(self) -> int:
        """Return its exit code, once all processes that it ever started are gone, too."""

        def over() -> bool:
            self.processes()
            return self.process.poll() is not None

        eventually(over, "the demo's end", within_seconds=2 * MAX_WAIT_SECONDS)
        self.all_gone()
        return self.process.returncode


def secrets_of(processes: list[psutil.Process]) -> set[str]:
    """The passwords that the demo gave to its processes."""
    found: set[str] = set()
    for process in processes:
        try:
            environ = process.environ()
        except psutil.NoSuchProcess:  # it has ended meanwhile
            continue
        found.add(environ.get("NEO4J_PASSWORD", ""))
        found.add(urlsplit(environ.get("CACHE_REDIS_URL", "")).password or "")
        found.add(environ.get("FLOWER_BASIC_AUTH", "").partition(":")[2])
    return found - {""}


@pytest.mark.promise("Contract and operation", "`make demo` kills a worker and keeps all guarantees")
@pytest.mark.parametrize(
    "graph", [pytest.param("default", marks=pytest.mark.long), pytest.param("small", marks=pytest.mark.smoke)]
)
def test_demo_succeeds_reports_its_figures_and_exposes_no_password_or_port(tmp_path: Path, graph: str) -> None:
    """`make test` uses a small graph: making and loading the default one takes as long as all the rest."""
    options, size = SMALL, r"1\d\d persons, 1,000 KNOWS"
    if graph == "default":
        options, size = (), r"(2\d|3\d),\d{3} persons, 200,000 KNOWS"
    with Demo(tmp_path, "--seconds", "4", *options) as demo:
        demo.wait_for(r"Flower: http://127.0.0.1:\d+, user demo, password \S+")
        passwords = set()
        for moment in (r"reads/s", r"worker killed", r"new worker is ready"):
            demo.wait_for(moment)
            passwords |= secrets_of(demo.processes())
            assert [line for password in passwords for line in shown_in_process_list(password)] == []
        assert len(passwords) == 3
        assert [address for process in demo.processes() for address in addresses_beyond_loopback(process.pid)] == []
        assert demo.ended() == 0, demo.out + demo.err
    for sentence in (
        size,
        r"reads in \d+ s from 2 processes; none failed",
        r"% were answered from the cache at once",
        r"The worker was killed with SIGKILL at",
        r"The first refresh came [\d.]+ s after the start of the new worker",
        r"no older value was served as fresh after one",
        r"Graph: embedded ArcadeDB \d",
    ):
        assert re.search(sentence, demo.out), sentence
    without = re.search(r"([\d,]+) reads were answered from the cache in the [\d.]+ s without a worker", demo.out)
    assert without is not None
    assert int(without[1].replace(",", "")) > 0
    assert "Traceback" not in demo.out + demo.err


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("graph made", signal.SIGINT),
        pytest.param("graph made", signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("Flower:", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("worker killed", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("servers started", signal.SIGHUP, marks=pytest.mark.long),
        pytest.param(r"\d reads/s", signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_a_signal_ends_the_demo_cleanly_at_any_moment(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    with Demo(tmp_path, "--seconds", "6", *SMALL) as demo:
        demo.wait_for(moment)
        demo.signal(number)
        assert demo.ended() == 130, demo.out + demo.err
    assert "interrupted; everything was stopped" in demo.out
    assert "Traceback" not in demo.out + demo.err


@pytest.mark.neo4j
@pytest.mark.timeout(4 * MAX_WAIT_SECONDS)
def test_demo_compares_staleness_with_the_feed_and_without_it(tmp_path: Path) -> None:
    own = (*SMALL, "--graph-server", "neo4j", "--feed", "--no-chaos")
    with Demo(tmp_path, "--seconds", "9", *own) as demo:
        assert demo.ended() == 0, demo.out + demo.err
    assert "Graph: embedded Neo4j 5.26" in demo.out
    shares = re.findall(r"([\d.]+)% of the reads were outdated, for ([\d.]+ m?s) at most", demo.out)
    assert len(shares) == 2, demo.out
    # An hour's TTL alone leaves 81 % outdated. Which of the two is lower is a matter of the machine's speed.
    with_feed, without = (float(share) for share, _ in shares)
    assert with_feed < 70
    assert 0 < without < 70


def test_neo4j_needs_java(tmp_path: Path) -> None:
    with Demo(tmp_path, "--graph-server", "neo4j", *SMALL, PATH=str(tmp_path)) as demo:
        assert demo.ended() == 1
    assert re.fullmatch(r"error: no Java for Neo4j 5\.26\.\d+: install Java 17 or 21\n", demo.err)
