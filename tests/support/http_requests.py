"""HTTP requests to a test's own server."""

from __future__ import annotations

import base64
import http.client

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
