"""Listens to Redis' invalidation messages for the in-process tier: one connection and one thread a process.

CLIENT TRACKING in BCAST mode: Redis says of every key under the entries' prefix that it was written, deleted, has
expired or was evicted, in any database and by anyone. The messages are pushed (RESP3) to the connection that asked.

The tier is on only while that connection is known to be good. A connection that ends says so; one that has gone silent
(a hung server, a cable) is found by a question every quarter of a second.
"""

from __future__ import annotations

import builtins
import logging
import os
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import hiredis
from redis.exceptions import AuthenticationError, ConnectionError, ResponseError, TimeoutError

from api_client.config.settings import ReaderSettings
from api_client.local.tier import LocalTier
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import entry_prefix, tier_channel
from api_client.threads import OwnThread, Waker
from api_client.transport.error_replies import error_reply, is_passing
from api_client.transport.pool import give_up_after
from api_client.transport.redis_py import connection_maker, reason
from api_client.transport.sentinel import MasterAddress
from api_client.transport.wire import CHUNK_BYTES, NEEDS_MORE, pack, pack_all

PROBE_SECONDS: Final = 0.25

# Switches to RESP3, which alone has push messages, and later is a question that changes nothing. The answer has the
# node's role: a master that was demoted keeps its connections, and they are of no use.
_PROBE: Final = pack("HELLO", 3)


class TrackingRefused(Exception):
    """Redis, or a proxy before it, does not do what is needed: RESP3, CLIENT TRACKING, this user."""


class InvalidationStream:
    """One connection that tracks. Used by one thread; only `wake` may be called by another.

    Args:
        made: a connection of redis-py, not connected yet: it does TLS, authentication and SELECT.
        timeout_seconds: for connecting, and for each answer.
        monotonic: the clock, in seconds.
    """

    def __init__(self, made: Any, timeout_seconds: float, monotonic: Callable[[], float]) -> None:
        self._made, self._timeout_seconds, self._monotonic = made, timeout_seconds, monotonic
        # Names come as text at once, as the tier has them; a foreign one with other bytes in it just is not ours.
        self._reader = hiredis.Reader(
            replyError=error_reply, encoding="utf-8", errors="replace", notEnoughData=NEEDS_MORE
        )
        self._socket: socket.socket | None = None
        self._heard_at = self._asked_at = 0.0
        self._awaits_answer = False
        self._role: str | None = None
        self._listens_since: float | None = None

    def track(self, prefix: str, channel: str) -> None:
        """Connect and ask for the invalidations of the keys under ``prefix``; back when Redis has agreed.

        It also subscribes to ``channel``, on which nothing comes. Redis bounds what it keeps for a client that does not
        read (a stopped process, say) by the client's class: a normal one's invalidations without end, a subscriber's
        up to ``client-output-buffer-limit pubsub``. Then it closes the connection.

        Raises:
            TrackingRefused: it has not.
            redis.exceptions.RedisError, OSError: no connection, or no answer, or not now.
        """
        self._made.connect()
        sock: socket.socket = self._made._sock  # noqa: SLF001 - redis-py gives it no name; a test holds it
        sock.settimeout(self._timeout_seconds)
        self._socket = sock
        requests = ("SUBSCRIBE", channel), ("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", prefix)
        sock.sendall(_PROBE + pack_all(requests))
        answers: list[Any] = []
        deadline = self._monotonic() + self._timeout_seconds
        while len(answers) < 3:
            if self._monotonic() >= deadline:
                raise TimeoutError("it did not answer in time")
            # What else is pushed meanwhile is of no interest: nothing has been kept yet.
            answers += [message for message in self._receive() if not _is_pushed(message) or message[0] == "subscribe"]
        self._answered(answers[0])
        if not _is_pushed(answers[1]):
            raise _refusal(answers[1], "SUBSCRIBE")
        if answers[2] != "OK":
            raise _refusal(answers[2], "CLIENT TRACKING")
        give_up_after(sock, PROBE_SECONDS, self)
        self._heard_at = self._asked_at = self._monotonic()

    def listen(self) -> tuple[list[str], bool]:
        """Wait for messages, not longer than to the next probe: the keys that have changed, and whether all have."""
        changed: list[str] = []
        all_gone = False
        self._listens_since = self._monotonic()
        try:
            messages = self._receive()
        except (builtins.TimeoutError, BlockingIOError):  # Python's timeout, the kernel's
            return changed, all_gone
        finally:
            self._listens_since = None
        self._heard_at = self._monotonic()
        for message in messages:
            if not _is_pushed(message):
                self._answered(message)
            elif message[0] == "invalidate":
                all_gone = all_gone or message[1] is None  # FLUSHALL or FLUSHDB
                changed += message[1] or ()
        return changed, all_gone

    def probe(self) -> bool:
        """Ask for a sign of life if that is due; tell whether it was.

        Raises:
            redis.exceptions.TimeoutError: nothing has come since the last question, for too long.
            OSError: the connection is gone.
        """
        assert self._socket is not None  # noqa: S101 - track came first
        now = self._monotonic()
        if self._awaits_answer:
            if now - max(self._asked_at, self._heard_at) >= self._timeout_seconds:
                raise TimeoutError("it has gone silent")
            return False
        if now - self._asked_at < PROBE_SECONDS:
            return False
        self._socket.sendall(_PROBE)
        self._asked_at, self._awaits_answer = now, True
        return True

    def end_if_overdue(self) -> None:
        """End a `listen` that signals have prolonged: no probe is sent meanwhile."""
        listens_since = self._listens_since
        if listens_since is not None and self._monotonic() - listens_since > PROBE_SECONDS + self._timeout_seconds:
            self.wake()

    def wake(self) -> None:
        """End a `listen` that waits, from another thread."""
        sock = self._socket
        if sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not TLS' own, which another thread may not call

    def close(self) -> None:
        """Close the connection."""
        self._made.disconnect()

    def _receive(self) -> list[Any]:
        assert self._socket is not None  # noqa: S101 - track came first
        chunk = self._socket.recv(CHUNK_BYTES)
        if not chunk:
            raise ConnectionError("the connection was closed")
        self._reader.feed(chunk)
        messages = []
        while (message := self._reader.gets()) is not NEEDS_MORE:
            messages.append(message)
        return messages

    def _answered(self, answer: Any) -> None:
        self._awaits_answer = False
        if not isinstance(answer, dict):
            raise _refusal(answer, "HELLO")
        role = answer.get("role")
        if self._role not in (None, role):
            raise ConnectionError(f"its node became a {role}")
        self._role = role


def _is_pushed(message: object) -> bool:
    return isinstance(message, hiredis.PushNotification)


def _refusal(answer: object, command: str) -> Exception:
    told = f"it answered {str(answer)[:200]!r} to {command}"
    return ConnectionError(told) if is_passing(answer) else TrackingRefused(told)


log: Final = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.001
FIRST_PAUSE_SECONDS: Final = 0.05
MAX_PAUSE_SECONDS: Final = 5.0
MAX_PAUSE_REFUSED_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 5.0
JOIN_SECONDS: Final = 1.0


class TrackingLink:
    """Turns a tier on while invalidations are heard, and off at once when they are not. Thread-safe.

    After a loss it comes back by itself, first after 50 ms, then after pauses that double up to 5 s (to a minute where
    Redis refuses), with jitter. Each outage is one line in the log.

    Args:
        url: the Redis that the entries are read from; it has to be the same server.
        timeout_seconds: for connecting, and for each answer.
        tier: what it serves.
        namespace: whose entries.
        known: where the master is for those who read, behind Sentinels; when it moves, so does this link.
        monotonic, sleep, jitter: the clock and the sleep in seconds; a draw in [0, 1).

    Raises:
        ConfigurationError: redis-py can't use the URL.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float,
        tier: LocalTier,
        namespace: str,
        known: MasterAddress | None = None,
        monotonic: Callable[[], float] = monotonic_seconds,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        known = known or MasterAddress()
        known.on_change(self._leave)
        self._make = connection_maker(url, timeout_seconds=timeout_seconds, known=known)
        self._timeout_seconds, self._tier, self._prefix = timeout_seconds, tier, entry_prefix(namespace)
        self._channel = tier_channel(namespace)
        self._monotonic, self._sleep, self._jitter = monotonic, sleep, jitter
        self._moves = 0
        self._is_ended = False
        self._told = ""
        self._begin()

    def _begin(self) -> None:
        """Begin in this process, without a link."""
        self._owner_pid = os.getpid()
        self._thread = OwnThread(self._run, "cache-invalidations")
        self._stream: InvalidationStream | None = None
        self._end = Waker()
        self._start_at = 0.0
        self._failures = 0

    def start(self) -> None:
        """Start listening, in a thread of its own; returns at once. May be repeated, which costs next to nothing."""
        if self._owner_pid != os.getpid():  # a fork that ran no hooks of Python's: thread and link are the parent's
            self._tier.leave_parent()
            self._begin()
        if self._thread.is_running or self._is_ended or self._monotonic() < self._start_at:
            return
        try:
            self._thread.ensure()
        except RuntimeError as error:  # the system's limit: the tier stays off, and the next second tries again
            self._start_at = self._monotonic() + 1.0
            self._tell("refused", str(error))

    def close(self) -> None:
        """End thread and connection; the tier is off for good. Waits at most a second."""
        self._is_ended = True
        self._end.wake()
        # A forked child has a copy of the socket: to shut it down there would end the parent's connection.
        if os.getpid() != self._owner_pid:
            return
        stream = self._stream
        if stream is not None:
            stream.wake()
        self._thread.join(JOIN_SECONDS)
        self._tier.bypass()

    def _run(self) -> None:
        while not self._is_ended:
            try:
                self._hold()
            except Exception as error:  # noqa: BLE001 - whatever it was: without this thread the tier would be off for good
                self._lost(error)
            self._end.wait(self._pause_seconds())

    def _hold(self) -> None:
        """Hold one connection for as long as it is good."""
        moves = self._moves
        stream = InvalidationStream(self._make(), self._timeout_seconds, self._monotonic)
        try:
            stream.track(self._prefix, self._channel)
            self._stream = stream
            if self._moves != moves:  # on the way to a master that is one no longer, perhaps
                raise ConnectionError("the master is another one")
            # Not before Redis has confirmed: what is read from now on is executed after that, and so is heard of.
            self._tier.resume()
            self._regained()
            steady_at = self._monotonic() + STEADY_SECONDS
            while not self._is_ended:
                self._step(stream)
                if self._failures and self._monotonic() >= steady_at:
                    self._failures = 0
        finally:
            self._tier.bypass()
            self._stream = None
            stream.close()

    def _step(self, stream: InvalidationStream) -> None:
        changed, all_gone = stream.listen()
        if all_gone:
            self._tier.clear()
        if changed:
            self._tier.drop_all(changed)
            # What comes meanwhile is handled as one: a storm of single messages costs no more than this thread's share.
            self._sleep(GATHER_SECONDS)
        if stream.probe():
            self._tier.drop_expired()
            self._make.look()

    def _leave(self) -> None:
        """Leave the node: those who read have left it, or will, and it hears nothing of what changes at another."""
        self._moves += 1
        self._tier.bypass()
        if (stream := self._stream) is not None:
            stream.wake()

    def _pause_seconds(self) -> float:
        longest = MAX_PAUSE_REFUSED_SECONDS if self._told == "refused" else MAX_PAUSE_SECONDS
        pause_seconds = min(longest, FIRST_PAUSE_SECONDS * (1 << min(self._failures, 16)))
        self._failures += 1
        return pause_seconds * (0.5 + self._jitter() / 2)

    def _lost(self, error: Exception) -> None:
        if self._is_ended:
            return
        if isinstance(error, TrackingRefused):
            self._tell("refused", str(error))
        elif isinstance(error, AuthenticationError | ResponseError):
            self._tell("refused", reason(error))
        else:
            self._tell("lost", reason(error))

    def _tell(self, what: str, why: str) -> None:
        if self._told != what:
            self._told = what
            log.warning("the in-process tier is off, its invalidations are %s: %s", what, why)

    def _regained(self) -> None:
        if self._told:
            log.info("the in-process tier is on again")
        self._told = ""


def open_local_tier(settings: ReaderSettings, master: MasterAddress) -> tuple[LocalTier | None, TrackingLink | None]:
    """Return the in-process tier and its link, as the settings say; None, None: it is off."""
    if not settings.local_max_entries:
        return None, None
    tier = LocalTier(
        max_entries=settings.local_max_entries,
        max_bytes=settings.local_max_bytes,
        max_age_seconds=settings.local_max_age_seconds,
    )
    timeout_seconds, namespace = settings.redis_timeout_seconds, settings.namespace
    return tier, TrackingLink(
        settings.redis_url, timeout_seconds=timeout_seconds, tier=tier, namespace=namespace, known=master
    )
