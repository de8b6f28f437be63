"""HTTP requests to a test's own server, and a server with fixed responses."""

from __future__ import annotations

import base64
import http.client
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Self

from tests.support.waiting import MAX_WAIT_SECONDS


def fetch(port: int, path: str, *, credentials: str = "", method: str = "GET") -> tuple[int, bytes]:
    """Return status and body of the response; status 0 if nothing listens. ``credentials`` are ``user:password``."""
    # Not urllib, which would use a proxy of the environment even for a loopback address.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=MAX_WAIT_SECONDS)
    coded = base64.b64encode(credentials.encode()).decode()
    try:
        connection.request(method, path, headers={"Authorization": f"Basic {coded}"} if credentials else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except ConnectionRefusedError:
        return 0, b""
    finally:
        connection.close()


class CannedHttpServer:
    """Answers with these bodies in turn, then repeatedly with the last one; at a free port, if 0."""

    def __init__(self, bodies: Sequence[str], status: int = 200, *, port: int = 0) -> None:
        left = list(bodies)

        class _Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = (left.pop(0) if len(left) > 1 else left[0]).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = HTTPServer(("127.0.0.1", port), _Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
