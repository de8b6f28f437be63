"""Keys whose worker is the test: it runs the lease steps on a real Redis, as a worker does."""

from __future__ import annotations

from typing import Any

from api_client.protocol import lease, payload
from api_client.protocol.entry import Flag, encode
from api_client.protocol.lease import AcquireStatus, CommitStatus
from api_client.transport.redis_py import nodes_of
from tests.support.lease_world import HARD_TTL_SECONDS, RETENTION_SECONDS, World, a_header
from tests.support.waiting import eventually

NONCE = b"nonce--1"


class WorkedKey(World):
    """One key. Its requests go into a real broker's queue, which no worker consumes."""

    def store_value(
        self, value: Any, *, age_seconds: float = 0.0, ttl_seconds: float = 100_000.0, **changes: Any
    ) -> int:
        """Store an entry whose load began ``age_seconds`` ago; return its token."""
        token = self.now_us() - int(age_seconds * 1e6)
        times = {"ttl_seconds": ttl_seconds, "soft_expiry_us": token + int(ttl_seconds * 1e6)}
        self.client.set(self.key.entry, self._entry(token, value, **(times | changes)), px=int(HARD_TTL_SECONDS * 1000))
        return token

    def wait_for_claim(self) -> int:
        """Wait until the key is claimed; return the claim's number."""
        eventually(lambda: self.state() == "queued", f"{self.key.query} is claimed")
        return int(self.record()["claim_number"])

    def begin(self) -> int:
        """Wait for a claim and begin its run; return the token."""
        reply = self.acquire(NONCE, number=self.wait_for_claim())
        assert reply.status is AcquireStatus.ACQUIRED
        return reply.token

    def end(self, token: int, value: Any, **changes: Any) -> CommitStatus:
        """Commit the value that a run has loaded."""
        return self.store.run(
            lease.commit(
                self.key, token=token, nonce=NONCE, entry=self._entry(token, value, **changes),
                hard_ttl_seconds=HARD_TTL_SECONDS, retention_seconds=RETENTION_SECONDS,
            )
        )  # fmt: skip

    def load(self, value: Any, **changes: Any) -> int:
        """Wait for a claim, begin its run and commit; return the token."""
        token = self.begin()
        assert self.end(token, value, **changes) is CommitStatus.ACCEPTED
        return token

    def hand_over(self, value: Any) -> int:
        """Load a value of TTL 0: only for the waiters."""
        token = self.begin()
        at = {"ttl_seconds": 0.0, "soft_expiry_us": token, "flags": Flag.HANDOFF}
        assert self.end(token, value, **at) is CommitStatus.ACCEPTED
        return token

    def abandon(self, kind: str = "syntax", attempts: int = 1, cooling_seconds: float = 30.0) -> None:
        """Wait for a claim, begin its run and abandon it."""
        failing = lease.fail(
            self.key, token=self.begin(), nonce=NONCE, cooling_seconds=cooling_seconds, kind=kind, attempts=attempts,
            retention_seconds=RETENTION_SECONDS,
        )  # fmt: skip
        assert self.store.run(failing)

    def has_subscriber(self) -> bool:
        """Return whether a client is subscribed to its notifications."""
        channel = self.key.channel
        return any(listening for node in nodes_of(self.client) for _, listening in node.pubsub_numsub(channel))

    def _entry(self, token: int, value: Any, **changes: Any) -> bytes:
        return encode(a_header(token, NONCE, **changes), self.key.digest, payload.encode(value))
