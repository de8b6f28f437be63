"""HTTP client for the ports of workers and of Flower: health and metrics."""

from __future__ import annotations

import http.client
import json
from http import HTTPStatus
from typing import Any, Final

TIMEOUT_SECONDS: Final = 5.0
MAX_BYTES: Final = 65_536
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - a server's address, not ours


def fetch_health(address: str, port: int, path: str) -> tuple[bool, dict[str, Any]]:
    """Return whether the worker is well, and its record, whose ``checks`` has each part.

    Raises:
        OSError, http.client.HTTPException: no reply, or not HTTP.
        ValueError: not a worker's health.
    """
    status, body = get(address, port, path)
    record = json.loads(body[:MAX_BYTES])
    if not isinstance(record, dict) or not isinstance(record.get("checks"), dict):
        raise ValueError("what listens there is not a worker's health")
    return status == HTTPStatus.OK, record


def get(address: str, port: int, path: str, *, over_tls: bool = False) -> tuple[int, bytes]:
    """Return status and body; raises what `http.client` raises."""
    # Not urllib, which would use a proxy of the environment.
    make = http.client.HTTPSConnection if over_tls else http.client.HTTPConnection
    connection = make(nearby(address), port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def nearby(address: str) -> str:
    """Return the address by which this host reaches a server that listens at ``address``."""
    return _ANYWHERE.get(address, address)
