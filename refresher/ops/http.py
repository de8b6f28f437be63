"""Minimal HTTP server: one thread per request, no access log, no versions in headers."""

from __future__ import annotations

import logging
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final

log: Final = logging.getLogger(__name__)


class MinimalHTTPServer(ThreadingHTTPServer):
    """Listens at once, on an IPv4 or an IPv6 address; `serve_forever` serves.

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
        """Log nothing of a client that hung up."""
        log.debug("a request was not answered", exc_info=True)


class MinimalHTTPHandler(BaseHTTPRequestHandler):
    """Sends no versions, and logs no requests."""

    def version_string(self) -> str:
        """Return the header Server."""
        return "refresher"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: one line per request would hide all others."""
