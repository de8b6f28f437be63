"""Asks the ports of workers, and Flower's, what they say: of their health, their metrics."""

from __future__ import annotations

import http.client
import json
from http import HTTPStatus
from typing import Any, Final

TIMEOUT_SECONDS: Final = 5.0
MAX_BYTES: Final = 65_536
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - who listens there is asked nearby


def ask_health(address: str, port: int, path: str) -> tuple[bool, dict[str, Any]]:
    """Return whether the worker says that all is well, and what it says of each part, in ``checks``.

    Raises:
        OSError, http.client.HTTPException: nobody answers, or no HTTP.
        ValueError: what answers is no worker's health.
    """
    status, body = get(address, port, path)
    record = json.loads(body[:MAX_BYTES])
    if not isinstance(record, dict) or not isinstance(record.get("checks"), dict):
        raise ValueError("what listens there is no worker's health")
    return status == HTTPStatus.OK, record


def get(address: str, port: int, path: str, *, over_tls: bool = False) -> tuple[int, bytes]:
    """Return what is answered there, status and body; raises what `http.client` raises."""
    # Not urllib, which would ask a proxy of the environment.
    make = http.client.HTTPSConnection if over_tls else http.client.HTTPConnection
    connection = make(nearby(address), port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def nearby(address: str) -> str:
    """Return where one who listens at ``address`` can be asked on this host."""
    return _ANYWHERE.get(address, address)
