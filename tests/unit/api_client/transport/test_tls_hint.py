"""The hint in an error whose cause may be the URL's scheme: TLS, or none."""

from __future__ import annotations

import ssl

import pytest
import redis

from api_client.transport.wire import reason

CLOSED = redis.ConnectionError("Error while reading from h:6379 : (104, 'Connection reset by peer')")
REFUSED = redis.ConnectionError("Error 111 connecting to h:6379. Connection refused.")
SILENT = redis.TimeoutError("Timeout connecting to server")
NO_TLS = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
NOT_TRUSTED = ssl.SSLCertVerificationError(1, "certificate verify failed")


@pytest.mark.parametrize(
    ("error", "url", "scheme"),
    [
        (CLOSED, "redis://h/0", "rediss://"),
        (CLOSED, "redis+sentinel://h/m/0", "rediss+sentinel://"),
        (ConnectionResetError(104, "Connection reset by peer"), "amqp://h//", "amqps://"),
        (SILENT, "rediss://h/0", "redis://"),
        (SILENT, "rediss+cluster://h", "redis+cluster://"),
        (NO_TLS, "amqps://h//", "amqp://"),
    ],
)
def test_an_error_that_tls_may_explain_names_the_other_scheme(error: Exception, url: str, scheme: str) -> None:
    assert reason(error, url).endswith(f", the URL begins with {scheme}")


@pytest.mark.parametrize(
    ("error", "url"),
    [(CLOSED, ""), (CLOSED, "rediss://h"), (REFUSED, "redis://h"), (SILENT, "redis://h"), (NOT_TRUSTED, "rediss://h")],
)
def test_an_error_with_another_cause_gives_no_tls_hint(error: Exception, url: str) -> None:
    assert "the URL begins" not in reason(error, url)
