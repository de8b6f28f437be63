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
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import hiredis
from redis.exceptions import AuthenticationError, ConnectionError, ResponseError, TimeoutError

from api_client.clock import monotonic_seconds
from api_client.keys import entry_prefix
from api_client.local_tier import LocalTier
from api_client.redis_edge import connection_maker, reason
from api_client.wire import CHUNK_BYTES, NEEDS_MORE, pack

log = logging.getLogger(__name__)

PROBE_SECONDS: Final = 0.25
GATHER_SECONDS: Final = 0.001
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 5.0
LONGEST_PAUSE_REFUSED_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 5.0
JOIN_SECONDS: Final = 1.0

# Switches to RESP3, which alone has push messages, and later is a question that changes nothing. The answer has the
# node's role: a master that was demoted keeps its connections, and they are of no use.
_PROBE: Final = pack("HELLO", 3)


class TrackingRefused(Exception):
    """Redis, or a proxy before it, does not do what is needed: RESP3, CLIENT TRACKING, this user."""


class TrackingLink:
    """Turns a tier on while invalidations are heard, and off at once when they are not. Thread-safe.

    After a loss it comes back by itself, first after 50 ms, then after pauses that double up to 5 s (to a minute where
    Redis refuses), with jitter. Each outage is one line in the log.

    Args:
        url: the Redis that the entries are read from; it has to be the same server.
        timeout_seconds: for connecting, and for each answer.
        tier: what it serves.
        namespace: whose entries.
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
        monotonic: Callable[[], float] = monotonic_seconds,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._make = connection_maker(url, timeout_seconds=timeout_seconds)
        self._timeout_seconds, self._tier, self._prefix = timeout_seconds, tier, entry_prefix(namespace)
        self._monotonic, self._sleep, self._jitter = monotonic, sleep, jitter
        self._owner_pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._session: _Session | None = None
        self._ended = threading.Event()
        self._start_at = 0.0
        self._failures = 0
        self._told = ""

    def start(self) -> None:
        """Start listening, in a thread of its own; returns at once. May be repeated, which costs next to nothing."""
        if self._thread is not None or self._monotonic() < self._start_at:
            return
        with self._lock:
            if self._thread is not None or self._ended.is_set():
                return
            thread = threading.Thread(target=self._run, name="cache-invalidations", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system's limit: the tier stays off, and the next second tries again
                self._start_at = self._monotonic() + 1.0
                self._tell("refused", str(error))
            else:
                self._thread = thread

    def close(self) -> None:
        """End thread and connection; the tier is off for good. Waits at most a second."""
        self._ended.set()
        # A forked child has a copy of the socket: to shut it down there would end the parent's connection.
        if os.getpid() != self._owner_pid:
            return
        session, thread = self._session, self._thread
        if session is not None:
            session.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_SECONDS)
        self._tier.bypass()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._hold()
            except Exception as error:  # noqa: BLE001 - whatever it was: without this thread the tier would be off for good
                self._lost(error)
            self._ended.wait(self._pause_seconds())

    def _hold(self) -> None:
        """Hold one connection for as long as it is good."""
        session = _Session(self._make(), self._timeout_seconds, self._monotonic)
        try:
            session.track(self._prefix)
            self._session = session
            # Not before Redis has confirmed: what is read from now on is executed after that, and so is heard of.
            self._tier.resume()
            self._regained()
            steady_at = self._monotonic() + STEADY_SECONDS
            while not self._ended.is_set():
                self._step(session)
                if self._failures and self._monotonic() >= steady_at:
                    self._failures = 0
        finally:
            self._tier.bypass()
            self._session = None
            session.close()

    def _step(self, session: _Session) -> None:
        changed, all_gone = session.listen()
        if all_gone:
            self._tier.clear()
        if changed:
            self._tier.drop_all(changed)
            # What comes meanwhile is handled as one: a storm of single messages costs no more than this thread's share.
            self._sleep(GATHER_SECONDS)
        if session.probe():
            self._tier.drop_expired()

    def _pause_seconds(self) -> float:
        longest = LONGEST_PAUSE_REFUSED_SECONDS if self._told == "refused" else LONGEST_PAUSE_SECONDS
        pause_seconds = min(longest, FIRST_PAUSE_SECONDS * (1 << min(self._failures, 16)))
        self._failures += 1
        return pause_seconds * (0.5 + self._jitter() / 2)

    def _lost(self, error: Exception) -> None:
        if self._ended.is_set():
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


class _Session:
    """One connection that tracks. Used by one thread; only `wake` may be called by another."""

    def __init__(self, made: Any, timeout_seconds: float, monotonic: Callable[[], float]) -> None:
        self._made, self._timeout_seconds, self._monotonic = made, timeout_seconds, monotonic
        # Names come as text at once, as the tier has them; a foreign one with other bytes in it just is not ours.
        self._reader = hiredis.Reader(encoding="utf-8", errors="replace", notEnoughData=NEEDS_MORE)
        self._socket: socket.socket | None = None
        self._heard_at = self._asked_at = 0.0
        self._awaits_answer = False
        self._role: str | None = None

    def track(self, prefix: str) -> None:
        """Connect and ask for the invalidations of the keys under ``prefix``; back when Redis has agreed.

        Raises:
            TrackingRefused: it has not.
            redis.exceptions.RedisError, OSError: no connection, or no answer.
        """
        self._made.connect()
        sock: socket.socket = self._made._sock  # noqa: SLF001 - redis-py gives it no name; a test holds it
        sock.settimeout(self._timeout_seconds)
        self._socket = sock
        sock.sendall(_PROBE + pack("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", prefix))
        answers: list[Any] = []
        deadline = self._monotonic() + self._timeout_seconds
        while len(answers) < 2:
            if self._monotonic() >= deadline:
                raise TimeoutError("it did not answer in time")
            # What is pushed meanwhile is of no interest: nothing has been kept yet.
            answers += [message for message in self._receive() if not isinstance(message, hiredis.PushNotification)]
        self._answered(answers[0])
        if answers[1] != "OK":
            raise TrackingRefused(f"it answered {str(answers[1])[:200]!r} to CLIENT TRACKING")
        sock.settimeout(PROBE_SECONDS)
        self._heard_at = self._asked_at = self._monotonic()

    def listen(self) -> tuple[list[str], bool]:
        """Wait for messages, not longer than to the next probe: the keys that have changed, and whether all have."""
        changed: list[str] = []
        all_gone = False
        try:
            messages = self._receive()
        except builtins.TimeoutError:
            return changed, all_gone
        self._heard_at = self._monotonic()
        for message in messages:
            if not isinstance(message, hiredis.PushNotification):
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
            raise TrackingRefused(f"it answered {str(answer)[:200]!r} to HELLO")
        role = answer.get("role")
        if self._role not in (None, role):
            raise ConnectionError(f"its node became a {role}")
        self._role = role
