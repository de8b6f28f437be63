"""Redis' invalidation messages for the in-process tier, over one connection and one thread per process.

With CLIENT TRACKING in BCAST mode, Redis pushes (RESP3) a message to this connection for every key under the entries'
prefix that is written, deleted, expired or evicted, in any database and by anyone.

The tier is on only while that connection is known to work. A probe every quarter of a second detects a silent one (a
hung server, a cable).
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
from api_client.transport.connection_maker import connection_maker
from api_client.transport.sentinel import MasterAddress
from api_client.transport.sockets import set_io_timeout
from api_client.transport.wire import CHUNK_BYTES, NEEDS_MORE, error_reply, is_transient, pack, pack_all, reason

log: Final = logging.getLogger(__name__)

PROBE_SECONDS: Final = 0.25
GATHER_SECONDS: Final = 0.001
FIRST_PAUSE_SECONDS: Final = 0.05
MAX_PAUSE_SECONDS: Final = 5.0
MAX_PAUSE_REFUSED_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 5.0
JOIN_SECONDS: Final = 1.0

# It switches to RESP3, the only protocol with push messages; later it is a probe without effect. The reply contains the
# node's role, since a demoted master keeps its connections, which are then useless.
_PROBE: Final = pack("HELLO", 3)


class TrackingRefused(Exception):
    """Redis or a proxy in front of it does not support RESP3 or CLIENT TRACKING, or this user lacks the permission."""


class InvalidationStream:
    """One connection with tracking, used by one thread; only `wake` may be called by another.

    Args:
        made: a connection of redis-py that is not connected yet, which does TLS, authentication and SELECT.
        timeout_seconds: the time to connect, and for each reply.
        monotonic: the clock, in seconds.
    """

    def __init__(self, made: Any, timeout_seconds: float, monotonic: Callable[[], float]) -> None:
        self._made, self._timeout_seconds, self._monotonic = made, timeout_seconds, monotonic
        # Names are decoded at once, as the tier uses them; a foreign name with other bytes is never one of ours.
        self._reader = hiredis.Reader(
            replyError=error_reply, encoding="utf-8", errors="replace", notEnoughData=NEEDS_MORE
        )
        self._socket: socket.socket | None = None
        self._received_at = self._probed_at = 0.0
        self._awaits_reply = False
        self._role: str | None = None
        self._listening_since: float | None = None

    def track(self, prefix: str, channel: str) -> None:
        """Connect and enable the invalidations of the keys under ``prefix``; return once Redis has confirmed.

        It also subscribes to ``channel``, which stays silent. Redis does not bound the output buffer of a normal client
        that does not read (a stopped process, say), but that of a subscriber by ``client-output-buffer-limit pubsub``,
        beyond which it closes the connection.

        Raises:
            TrackingRefused: Redis has refused.
            redis.exceptions.RedisError, OSError: there is no connection or no reply, or Redis refuses for now.
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
            # Other messages do not matter yet, since nothing has been kept.
            answers += [message for message in self._receive() if not _is_pushed(message) or message[0] == "subscribe"]
        self._on_reply(answers[0])
        if not _is_pushed(answers[1]):
            raise _refusal(answers[1], "SUBSCRIBE")
        if answers[2] != "OK":
            raise _refusal(answers[2], "CLIENT TRACKING")
        set_io_timeout(sock, PROBE_SECONDS, self)
        self._received_at = self._probed_at = self._monotonic()

    def listen(self) -> tuple[list[str], bool]:
        """Wait for messages until the next probe is due; return the changed keys, and whether all have changed."""
        changed: list[str] = []
        all_gone = False
        self._listening_since = self._monotonic()
        try:
            messages = self._receive()
        except (builtins.TimeoutError, BlockingIOError):  # Python's timeout, and the kernel's
            return changed, all_gone
        finally:
            self._listening_since = None
        self._received_at = self._monotonic()
        for message in messages:
            if not _is_pushed(message):
                self._on_reply(message)
            elif message[0] == "invalidate":
                all_gone = all_gone or message[1] is None  # FLUSHALL or FLUSHDB
                changed += message[1] or ()
        return changed, all_gone

    def probe(self) -> bool:
        """Send a probe if one is due; return whether it was sent.

        Raises:
            redis.exceptions.TimeoutError: the last probe had no reply in time.
            OSError: the connection is gone.
        """
        assert self._socket is not None  # noqa: S101 - track came first
        now = self._monotonic()
        if self._awaits_reply:
            if now - max(self._probed_at, self._received_at) >= self._timeout_seconds:
                raise TimeoutError("it has gone silent")
            return False
        if now - self._probed_at < PROBE_SECONDS:
            return False
        self._socket.sendall(_PROBE)
        self._probed_at, self._awaits_reply = now, True
        return True

    def close_if_stalled(self) -> None:
        """End a `listen` that signals have prolonged, since no probe is sent during it."""
        since = self._listening_since
        if since is not None and self._monotonic() - since > PROBE_SECONDS + self._timeout_seconds:
            self.wake()

    def wake(self) -> None:
        """End a waiting `listen`, from another thread."""
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

    def _on_reply(self, answer: Any) -> None:
        self._awaits_reply = False
        if not isinstance(answer, dict):
            raise _refusal(answer, "HELLO")
        role = answer.get("role")
        if self._role not in (None, role):
            raise ConnectionError(f"its node became a {role}")
        self._role = role


def _is_pushed(message: object) -> bool:
    return isinstance(message, hiredis.PushNotification)


def _refusal(answer: object, command: str) -> Exception:
    message = f"it answered {str(answer)[:200]!r} to {command}"
    return ConnectionError(message) if is_transient(answer) else TrackingRefused(message)


class TrackingLink:
    """Turns a tier on while invalidations are received, and off as soon as they are not. Thread-safe.

    After a loss it reconnects by itself, first after 50 ms, then after pauses that double up to 5 s (up to a minute if
    Redis refuses), with jitter. Each outage takes one line in the log.

    Args:
        url: the URL of the Redis from which entries are read; it has to be the same server.
        timeout_seconds: the time to connect, and for each reply.
        tier: the tier to invalidate.
        namespace: the namespace of the entries.
        known: the readers' master, behind Sentinels; the link follows it.
        monotonic, sleep, jitter: the clock and the sleep, in seconds, and a draw in [0, 1).

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
        self._reported = ""
        self._begin()

    def _begin(self) -> None:
        """Initialise the state for this process, without a link."""
        self._owner_pid = os.getpid()
        self._thread = OwnThread(self._run, "cache-invalidations")
        self._stream: InvalidationStream | None = None
        self._end = Waker()
        self._start_at = 0.0
        self._failures = 0

    def start(self) -> None:
        """Start listening in a thread of its own and return at once; repeated calls cost next to nothing."""
        if self._owner_pid != os.getpid():  # a fork without Python hooks: thread and link belong to the parent
            self._tier.leave_parent()
            self._begin()
        if self._thread.is_running or self._is_ended or self._monotonic() < self._start_at:
            return
        try:
            self._thread.ensure()
        except RuntimeError as error:  # the system's limit on threads: the tier stays off until another try in a second
            self._start_at = self._monotonic() + 1.0
            self._report("refused", str(error))

    def close(self) -> None:
        """End thread and connection, and turn the tier off for good. Waits at most a second."""
        self._is_ended = True
        self._end.wake()
        # A forked child has a copy of the socket, whose shutdown would end the parent's connection.
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
        """Keep one connection for as long as it works."""
        moves = self._moves
        stream = InvalidationStream(self._make(), self._timeout_seconds, self._monotonic)
        try:
            stream.track(self._prefix, self._channel)
            self._stream = stream
            if self._moves != moves:  # perhaps connected to a former master
                raise ConnectionError("the master is another one")
            # Only once Redis has confirmed: later reads are executed after that, so changes to their keys are pushed.
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
            # Messages that come during the pause are handled together, so a storm of them costs this thread no more.
            self._sleep(GATHER_SECONDS)
        if stream.probe():
            self._tier.drop_expired()
            if self._make.resolver is not None:
                self._make.resolver.poll()

    def _leave(self) -> None:
        """Leave the node as the readers do, since it does not push another node's changes."""
        self._moves += 1
        self._tier.bypass()
        if (stream := self._stream) is not None:
            stream.wake()

    def _pause_seconds(self) -> float:
        longest = MAX_PAUSE_REFUSED_SECONDS if self._reported == "refused" else MAX_PAUSE_SECONDS
        pause_seconds = min(longest, FIRST_PAUSE_SECONDS * (1 << min(self._failures, 16)))
        self._failures += 1
        return pause_seconds * (0.5 + self._jitter() / 2)

    def _lost(self, error: Exception) -> None:
        if self._is_ended:
            return
        if isinstance(error, TrackingRefused):
            self._report("refused", str(error))
        elif isinstance(error, AuthenticationError | ResponseError):
            self._report("refused", reason(error))
        else:
            self._report("lost", reason(error))

    def _report(self, what: str, why: str) -> None:
        if self._reported != what:
            self._reported = what
            log.warning("local cache disabled: invalidation stream %s (%s)", what, why)

    def _regained(self) -> None:
        if self._reported:
            log.info("local cache enabled again")
        self._reported = ""


def open_local_tier(settings: ReaderSettings, master: MasterAddress) -> tuple[LocalTier | None, TrackingLink | None]:
    """Return the in-process tier of the settings and its link; None, None if it is off."""
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
