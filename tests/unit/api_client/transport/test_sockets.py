"""Socket options of every connection to Redis."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from api_client.transport.connection_maker import async_connection_maker, connection_maker


@pytest.mark.parametrize("make", [connection_maker, async_connection_maker])
@pytest.mark.parametrize("url", ["redis://h:1/0", "rediss://h:1/0", "redis+sentinel://h:1/m", "redis+cluster://h:1"])
def test_an_idle_connection_is_probed_before_a_firewall_forgets_it(make: Any, url: str) -> None:
    made = make(url, timeout_seconds=3.0)()
    assert made.socket_keepalive
    assert made.socket_keepalive_options == {
        socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3,
    }  # fmt: skip
