"""An HTTP request to a server of the test's own."""

from __future__ import annotations

import base64
import http.client

from tests.support.waiting import MAX_WAIT_SECONDS


def fetch(port: int, path: str, *, credentials: str = "", method: str = "GET") -> tuple[int, bytes]:
    """Return the answer's status and body; status 0 while nothing listens. ``credentials`` are ``user:password``."""
    # Not urllib, which would ask a proxy of the environment for a loopback address.
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
