"""A certificate authority for tests, and certificates of servers: valid ones, and invalid ones with one fault each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import trustme

HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class Certificate:
    """A server's certificate and key, as files."""

    certificate: Path
    key: Path

    def of_redis(self, port: int) -> dict[str, str]:
        """Return the lines of redis.conf that listen with it."""
        return {
            "tls-port": str(port),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
            "tls-auth-clients": "no",
        }


class Authority:
    """A CA in a folder of its own; ``root`` is the certificate for clients that trust it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ca = folder, trustme.CA()
        folder.mkdir(parents=True, exist_ok=True)
        self.root = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.root))

    def issue(self, name: str, *, host: str = HOST, expired: bool = False) -> Certificate:
        """Issue a certificate for ``host``; ``name`` is that of its files."""
        now = datetime.now(UTC)
        issued = self._ca.issue_cert(
            host,
            not_before=now - timedelta(days=2),
            not_after=now - timedelta(days=1) if expired else now + timedelta(days=2),
        )
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        made.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        made.key.touch(mode=0o600)
        issued.private_key_pem.write_to_path(str(made.key))
        return made
