"""Faults of the tracking connection: the tier is emptied and turned off at once, and recovers by itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from api_client import threads
from api_client.local.entry import LocalEntry
from api_client.local.tracking import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_REFUSED_SECONDS,
    MAX_PAUSE_SECONDS,
    PROBE_SECONDS,
    STEADY_SECONDS,
)
from refresher.embedded import RedisServer
from tests.servers.restarts import restart
from tests.support.fault_proxy import FaultProxy
from tests.support.internals import failures_of, pause_seconds, set_refused, thread_of
from tests.support.processes import run_forked
from tests.support.timing import Measured
from tests.support.tracked import HEADER, Tracked, entry_key, losses
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

KEY, OTHER = entry_key("aa"), entry_key("bb")
IMPATIENT_SECONDS = 1.0


@pytest.fixture
def proxy(own_redis: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy.before(own_redis.url()) as made:
        yield made


@pytest.fixture
def tracked(own_redis: RedisServer, proxy: FaultProxy) -> Iterator[Tracked]:
    """Its link goes through the proxy, the test's own commands do not."""
    with Tracked(proxy.url(own_redis.url()), own_redis.url()) as made:
        made.up().keep(KEY, OTHER)
        yield made


@pytest.fixture
def impatient(own_redis: RedisServer, proxy: FaultProxy) -> Iterator[Tracked]:
    """The same with a short timeout, for tests of a silent server; on a busy machine it takes any for silent."""
    with Tracked(proxy.url(own_redis.url()), own_redis.url(), timeout_seconds=IMPATIENT_SECONDS) as made:
        eventually(lambda: keeps(made), "an entry is kept")
        yield made


def keeps(tracked: Tracked) -> bool:
    fill = tracked.tier.begin(KEY)
    return fill is not None and tracked.tier.fill(fill, LocalEntry(b"old", HEADER, 0))


def recovers(impatient: Tracked) -> None:
    """Check that the tier keeps entries again, and receives invalidations."""
    eventually(lambda: keeps(impatient), "an entry is kept again")
    impatient.control.set(KEY, "new")
    eventually(lambda: KEY not in impatient.tier.entries, "its invalidation arrives")


def off(tracked: Tracked) -> None:
    eventually(lambda: tracked.tier.is_bypassed, "the tier is off")
    assert tracked.tier.entries == {}


def probes(tracked: Tracked) -> int:
    """Return how often the server was probed, including the first HELLO."""
    calls: int = tracked.control.info("commandstats")["cmdstat_hello"]["calls"]
    return calls


CUTS: dict[str, Callable[[Tracked, FaultProxy], object]] = {
    "RST": lambda _, proxy: proxy.cuts(),
    "FIN": lambda _, proxy: proxy.cuts(orderly=True),
    "CLIENT KILL": lambda tracked, _: [tracked.control.client_kill_filter(_id=one) for one in tracked.tracking_ids()],
}


@pytest.mark.parametrize("how", CUTS)
def test_a_cut_connection_turns_the_tier_off_and_a_new_one_turns_it_on(
    tracked: Tracked, proxy: FaultProxy, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill, before = tracked.begin(KEY), tracked.tracking_ids()
    seen_off = watch_for_off(tracked)
    CUTS[how](tracked, proxy)
    assert seen_off.wait(MAX_WAIT_SECONDS)
    tracked.works(KEY)
    assert not tracked.tier.fill(fill, LocalEntry(b"old", HEADER, 0))
    assert OTHER not in tracked.tier.entries
    assert tracked.tracking_ids().isdisjoint(before)
    assert len(losses(caplog)) == 1


def watch_for_off(tracked: Tracked) -> threading.Event:
    """Return an event that is set when the tier is turned off: a cut link may be back before a test checks."""
    seen, original = threading.Event(), tracked.tier.bypass

    def bypass() -> None:
        original()
        assert tracked.tier.entries == {}
        seen.set()

    tracked.tier.bypass = bypass  # type: ignore[method-assign]
    return seen


SILENCES: dict[str, Callable[[FaultProxy], None]] = {
    "hangs": FaultProxy.hangs,
    "replies are lost": FaultProxy.drops_replies,
}


@pytest.mark.alone
@pytest.mark.parametrize("how", SILENCES)
def test_a_silent_tracking_connection_is_detected_by_the_next_probe(
    impatient: Tracked, proxy: FaultProxy, how: str
) -> None:
    with Measured() as took:
        SILENCES[how](proxy)
        off(impatient)
    took.at_most(PROBE_SECONDS + IMPATIENT_SECONDS)  # until the next probe, and for its reply
    attempts = impatient.pauses
    eventually(lambda: impatient.pauses >= attempts + 2, "another attempt")
    proxy.passes()
    recovers(impatient)


def test_the_tier_is_off_while_the_server_is_killed_and_recovers_after_its_restart(
    own_redis: RedisServer, tracked: Tracked, caplog: pytest.LogCaptureFixture
) -> None:
    own_redis.kill()
    off(tracked)
    eventually(lambda: tracked.pauses >= 2, "another attempt")
    restart(own_redis, keep_data=False)
    tracked.works(KEY)
    assert len(losses(caplog)) == 1


def test_a_slow_tracking_connection_is_not_taken_for_a_lost_one(
    tracked: Tracked, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    before, probed = tracked.tracking_ids(), probes(tracked)
    proxy.slows(2 * PROBE_SECONDS)
    eventually(lambda: probes(tracked) >= probed + 3, "three probes")
    tracked.works(KEY)
    assert tracked.tracking_ids() == before
    assert losses(caplog) == []


def test_the_tracking_connection_to_a_demoted_master_is_dropped(own_redis: RedisServer, tracked: Tracked) -> None:
    seen_off, before = watch_for_off(tracked), tracked.tracking_ids()
    tracked.control.execute_command("REPLICAOF", own_redis.host, "1")
    assert seen_off.wait(MAX_WAIT_SECONDS)
    tracked.up()  # where the URL leads now; here the same node
    assert tracked.tracking_ids().isdisjoint(before)


def test_reconnect_pauses_grow_to_a_bound_and_reset_once_a_connection_was_steady(own_redis: RedisServer) -> None:
    now = [0.0]
    with Tracked(own_redis.url(), jitter=lambda: 1.0, monotonic=lambda: now[0]) as tracked:
        tracked.up()
        pauses = [pause_seconds(tracked.link) for _ in range(30)]
        assert pauses[:4] == [FIRST_PAUSE_SECONDS * factor for factor in (1, 2, 4, 8)]
        assert pauses[-1] == max(pauses) == MAX_PAUSE_SECONDS
        now[0] += STEADY_SECONDS
        tracked.wait_until_received()
        eventually(lambda: failures_of(tracked.link) == 0, "the failures are forgotten")
        set_refused(tracked.link)
        assert max(pause_seconds(tracked.link) for _ in range(30)) == MAX_PAUSE_REFUSED_SECONDS


def test_jitter_spreads_the_pauses(own_redis: RedisServer) -> None:
    with Tracked(own_redis.url(), jitter=lambda: 0.5) as tracked:
        tracked.up()
        assert pause_seconds(tracked.link) == pytest.approx(FIRST_PAUSE_SECONDS * 0.75)


def test_without_a_thread_the_tier_is_off_and_the_start_is_retried_after_a_second(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(*_: object) -> None:
        attempts.append(now[0])
        raise RuntimeError("can't start new thread")

    attempts, now = list[float](), [0.0]
    with monkeypatch.context() as patched:
        patched.setattr(threads, "start_new_thread", no_thread)
        made = Tracked(own_redis.url(), monotonic=lambda: now[0])
        for _ in range(100):
            made.link.start()
    assert attempts == [0.0]
    assert made.tier.is_bypassed
    assert len(losses(caplog)) == 1
    now[0] = 1.0
    with made as tracked:  # starts again
        tracked.works(KEY)


def test_an_unforeseen_error_does_not_end_the_thread(
    tracked: Tracked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    seen_off = watch_for_off(tracked)
    with monkeypatch.context() as patched:
        patched.setattr(tracked.tier, "drop_all", broken)
        tracked.control.set(KEY, "new")
        assert seen_off.wait(MAX_WAIT_SECONDS)
    tracked.works(KEY)
    assert "ZeroDivisionError" in losses(caplog)[0]


def test_a_child_that_closes_its_copy_leaves_the_parent_s_connection_alone(tracked: Tracked) -> None:
    before = tracked.tracking_ids()
    run_forked(tracked.link.close)
    tracked.works(KEY)
    assert tracked.tracking_ids() == before


def test_a_start_never_waits_for_a_silent_server(own_redis: RedisServer, proxy: FaultProxy) -> None:
    proxy.hangs()
    with Tracked(proxy.url(own_redis.url()), own_redis.url()) as tracked:
        assert tracked.tier.begin(KEY) is None
        assert tracked.pauses == 0, "the first attempt to connect has not ended"
        proxy.passes()
        tracked.works(KEY)


def test_a_silent_tracking_connection_is_detected_whatever_signals_come(
    impatient: Tracked, own_redis: RedisServer, proxy: FaultProxy
) -> None:
    listener = thread_of(impatient.link)
    sent, taken = [0], [0]

    def take(number: int, frame: object) -> None:
        taken[0] = sent[0]

    def is_off_though_interrupted() -> bool:
        if taken == sent:  # one that is under way when the test ends would end the process
            sent[0] += 1
            signal.pthread_kill(listener.ident or 0, signal.SIGUSR1)
        return impatient.tier.is_bypassed

    before = signal.signal(signal.SIGUSR1, take)
    try:
        proxy.hangs()
        eventually(is_off_though_interrupted, "the tier is off")
    finally:
        eventually(lambda: taken == sent, "the last signal")
        signal.signal(signal.SIGUSR1, before)
