"""HTTP for operators: a minimal server (a thread per request, no access log, no version headers), and a client."""

from __future__ import annotations

import http.client
import json
import logging
import socket
from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final

log: Final = logging.getLogger(__name__)

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
CLIENT_SECONDS: Final = 5.0
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - a server's address, not ours


class MinimalHTTPServer(ThreadingHTTPServer):
    """A server that listens at once, on an IPv4 or IPv6 address; `serve_forever` serves.

    Raises:
        OSError: it can't listen there.
    """

    daemon_threads = True

    def __init__(self, where: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family: int = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        super().__init__(where, handler)

    def server_bind(self) -> None:
        """Bind without resolving the address's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name: str = str(self.server_address[0])
        self.server_port: int = self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log clients that hung up only at DEBUG."""
        log.debug("a request was not answered", exc_info=True)


class MinimalHTTPHandler(BaseHTTPRequestHandler):
    """Sends no versions, and logs no requests."""

    def version_string(self) -> str:
        """Return the Server header."""
        return "refresher"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, since one line per request would hide all others."""

    def send(self, status: HTTPStatus, body: bytes, content_type: str, headers: Mapping[str, str]) -> None:
        """Send a response that must not be cached, without its body to HEAD."""
        self.send_response(status)
        sent = {"Cache-Control": "no-store", **headers, "Content-Type": content_type, "Content-Length": str(len(body))}
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def get(address: str, port: int, path: str) -> tuple[int, bytes]:
    """Return status and body; errors of `http.client` pass through."""
    # Not with urllib, which would use the environment's proxy.
    with closing(http.client.HTTPConnection(nearby(address), port, timeout=CLIENT_SECONDS)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def is_ok(address: str, port: int, path: str) -> bool:
    """Return whether a server there replies with 200."""
    try:
        return get(address, port, path)[0] == HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False


def fetch_health(address: str, port: int, path: str) -> tuple[bool, dict[str, Any]]:
    """Return whether the worker is well, and its record, whose ``checks`` contains each part.

    Raises:
        OSError, http.client.HTTPException: there was no reply, or it is not HTTP.
        ValueError: the reply is not a worker's health.
    """
    status, body = get(address, port, path)
    record = json.loads(body)
    if not isinstance(record, dict) or not isinstance(record.get("checks"), dict):
        raise ValueError("what listens there is not a worker's health endpoint")
    return status == HTTPStatus.OK, record


def nearby(address: str) -> str:
    """Return the address by which this host reaches a server that listens at ``address``."""
    return _ANYWHERE.get(address, address)
