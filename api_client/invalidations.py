"""One connection over which Redis says which entries have changed: RESP3, with CLIENT TRACKING in BCAST mode.

Used by the thread of `tracking`, which knows when to open one and what follows from its end.
"""

from __future__ import annotations

import builtins
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import hiredis
from redis.exceptions import ConnectionError, TimeoutError

from api_client.error_replies import error_reply, is_passing
from api_client.sockets import give_up_after
from api_client.wire import CHUNK_BYTES, NEEDS_MORE, pack, pack_all

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
