"""Redis servers with the users of deploy/redis, and one more with all permissions."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import redis

from refresher.embedded import RedisServer
from tests.servers.redis_binaries import redis_under_test
from tests.support.waiting import MAX_WAIT_SECONDS

ROOT = Path(__file__).parents[2]
NEW_USERS = ROOT / "deploy/redis/new_users.py"
ADMIN = "admin-of-the-test"
Command: TypeAlias = tuple[str | int, ...]
NO_PERMISSION: Final = "The user executing the script can't|ACL failure in script|NOPERM"
"""A script is answered so if its user lacks a command: by Redis 7.0, by Valkey, and by a code."""

# No user needs these, and each would expose all data, or end the service.
NOBODY: tuple[Command, ...] = (
    ("FLUSHALL",), ("FLUSHDB",), ("KEYS", "*"), ("SCAN", 0), ("RANDOMKEY",), ("CONFIG", "GET", "requirepass"),
    ("CONFIG", "SET", "maxmemory", 1), ("ACL", "LIST"), ("ACL", "WHOAMI"), ("ACL", "SETUSER", "x", "on"), ("SHUTDOWN",),
    ("SAVE",), ("BGSAVE",), ("REPLICAOF", "NO", "ONE"), ("MONITOR",), ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "TYPE", "normal"), ("SLOWLOG", "GET"), ("MODULE", "LIST"), ("SCRIPT", "FLUSH"),
    ("FUNCTION", "LIST"), ("FCALL", "f", 0), ("SWAPDB", 0, 1), ("DUMP", "x"),
    ("RESTORE", "x", 0, "x"), ("MIGRATE", "h", 1, "x", 0, 1), ("OBJECT", "FREQ", "x"), ("COPY", "x", "y"),
    ("RENAME", "x", "y"), ("PUBSUB", "CHANNELS"), ("PSUBSCRIBE", "*"), ("SUBSCRIBE", "elsewhere"),
)  # fmt: skip
# Readers and workers repeat a step whose script was flushed by EVAL; no other user needs it.
OWN_SCRIPT: Command = ("EVAL", "return 1", 0)


def make_users(folder: Path, *options: str) -> dict[tuple[str, str], str]:
    """Run the documented command; return the passwords by server and user."""
    of_version = ["--redis-7.0"] if os.environ.get("TEST_REDIS") == "redis-7.0" else []
    subprocess.run([sys.executable, str(NEW_USERS), str(folder), *options, *of_version], check=True)
    words = [line.split() for line in (folder / "passwords").read_text().splitlines()]
    return {(server, user): password for server, user, password in words}


class UsersRedis(RedisServer):
    """A Redis with an ACL file. Its own URL is that of the user with all permissions."""

    acl = ""

    @classmethod
    def with_users(cls, acl: str, extra_config: Sequence[tuple[str, str]] = (), password: str | None = None) -> Self:
        server = cls(redis_under_test(), extra_config, 2 * MAX_WAIT_SECONDS)
        server.acl, server.password = acl, password or server.password
        server._launch_or_clean_up()
        return server

    def url(self, db: int = 0) -> str:
        return self.url_of(ADMIN, self.password, db)

    def url_of(self, user: str, password: str, db: int = 0) -> str:
        return f"redis://{user}:{password}@{self.host}:{self.port}/{db}"

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        argv, env = super()._prepare()
        admin = f"user {ADMIN} on #{hashlib.sha256(self.password.encode()).hexdigest()} ~* &* +@all\n"
        acl = self.directory / "users.acl"
        acl.touch(mode=0o600)
        acl.write_text(self.acl + admin)
        with Path(argv[1]).open("a") as config:
            config.write(f'aclfile "{acl}"\n')
        return argv, env

    def _client(self, timeout_seconds: float) -> redis.Redis:
        return redis.Redis.from_url(self.url(), socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds)

    def refuses(self, user: str, password: str, command: Command) -> bool:
        """Return whether a user may not send a command; remove the refusal from the log."""
        with redis.Redis.from_url(self.url_of(user, password)) as client:
            try:
                client.execute_command(*command)
            except redis.exceptions.NoPermissionError:
                return True
            except redis.ResponseError as error:
                return "no permissions" in str(error)
            return False

    def denied(self) -> set[tuple[str, str, str]]:
        """Return the refusals since the log was emptied: user, reason, and the command, key or channel."""
        with redis.Redis.from_url(self.url(), decode_responses=True) as client:
            return {(each["username"], each["reason"], each["object"].lower()) for each in client.acl_log(128)}

    def forget_denied(self) -> None:
        """Empty the log of refusals."""
        with redis.Redis.from_url(self.url()) as client:
            client.acl_log_reset()


class Users:
    """A cache and a broker with users, and the URL of each on them."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.passwords = make_users(folder)
        self.cache = stack.enter_context(UsersRedis.with_users((folder / "cache.acl").read_text()))
        self.broker = stack.enter_context(UsersRedis.with_users((folder / "broker.acl").read_text()))

    def url(self, server: str, user: str) -> str:
        """Return the URL with which a user signs in on ``"cache"`` or ``"broker"``."""
        of: UsersRedis = getattr(self, server)
        return of.url_of(user, self.passwords[server, user])

    def client(self, server: str, user: str) -> redis.Redis:
        """Return a client that is signed in as a user; the caller closes it."""
        client: Any = redis.Redis.from_url(self.url(server, user))
        return client
