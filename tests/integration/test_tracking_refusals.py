"""A Redis that refuses to send invalidations: the tier stays off, logs it once, and tries again."""

from __future__ import annotations

import threading

import pytest
import redis

from refresher.embedded import RedisServer
from tests.support.tracked import Tracked, entry_key, losses
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

KEY = entry_key("aa")


def refused(tracked: Tracked, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """Several attempts have failed, the log has one line that says why, and no secret."""
    eventually(lambda: tracked.pauses >= 3, "three attempts")
    assert tracked.tier.is_bypassed
    (line,) = losses(caplog)
    assert why in line
    assert "sesame" not in caplog.text


REFUSALS = {
    "no permission to track": (">sesame +@all -client +client|setname +client|id", "to CLIENT TRACKING"),
    "no permission to subscribe": (">sesame +@all -subscribe", "to SUBSCRIBE"),
    "another password": (">other +@all", "it refuses this user or password"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_is_logged_once_and_retried(
    own_redis: RedisServer, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    rights, why = REFUSALS[what]
    made = Tracked(f"redis://reader:sesame@{own_redis.host}:{own_redis.port}/0", own_redis.url())
    made.control.execute_command("ACL", "SETUSER", "reader", "on", "~*", "&*", *rights.split())
    with made as tracked:
        refused(tracked, caplog, why)
        made.control.execute_command("ACL", "SETUSER", "reader", ">sesame", "+@all")
        tracked.works(KEY)


class WithoutResp3(RedisServer):
    """Checks its server in RESP2, since HELLO is disabled."""

    def _client(self, timeout_seconds: float) -> redis.Redis:
        return redis.Redis.from_url(self.url(), protocol=2, socket_timeout=timeout_seconds)


def test_a_server_without_resp3_is_logged_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    with WithoutResp3.start(extra_config={"rename-command": 'HELLO ""'}) as old, Tracked(old.url()) as tracked:
        refused(tracked, caplog, "to HELLO")


def test_a_server_that_is_busy_with_a_script_counts_as_lost_not_as_refusing(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    made = Tracked(own_redis.url())
    made.control.config_set("lua-time-limit", 1)
    endless = threading.Thread(target=run_endless_script, args=(own_redis,))
    endless.start()
    eventually(lambda: is_busy(made), "the server is busy")
    with made as tracked:
        eventually(lambda: losses(caplog), "a failed attempt")
        assert "lost" in losses(caplog)[0]
        assert "BUSY" in losses(caplog)[0]
        tracked.control.script_kill()
        endless.join(MAX_WAIT_SECONDS)
        tracked.works(KEY)


def run_endless_script(server: RedisServer) -> None:
    with (
        redis.Redis.from_url(server.url(), socket_timeout=MAX_WAIT_SECONDS) as client,
        pytest.raises(redis.ResponseError),
    ):
        client.eval("while true do end", 0)


def is_busy(tracked: Tracked) -> bool:
    try:
        tracked.control.get(KEY)
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False
