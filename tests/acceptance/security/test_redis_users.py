"""The users of deploy/redis, each by what it is denied; and that no script of its own gives a reader more."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from api_client import ReaderSettings
from api_client.protocol.budget import Budget, Share, Urgency
from api_client.protocol.keys import budget_keys, make_key, versions_key
from api_client.protocol.messages import MAX_MESSAGE_BYTES
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.redis_users import NEW_USERS, NOBODY, OWN_SCRIPT, ROOT, Command, Users, make_users

KEY = make_key("cache", "friends_of", {"person_id": 42}, 1)
OTHERS = make_key("other", "friends_of", {"person_id": 42}, 1)
QUEUE = "cache.refresh-miss"
VERSIONS = versions_key("cache", "friends_of")
ENTRY = b"an entry, as far as this test goes"

ANY_ON_THE_CACHE: tuple[Command, ...] = (
    *NOBODY, ("GET", OTHERS.entry), ("HGETALL", OTHERS.record), ("GET", "anything"), ("SUBSCRIBE", OTHERS.channel),
    ("PUBLISH", OTHERS.channel, "x"), ("SET", OTHERS.entry, "x"), ("GETDEL", KEY.entry), ("APPEND", KEY.entry, "x"),
    ("SETBIT", KEY.entry, 1, 1), ("BITFIELD", KEY.entry, "SET", "u8", 0, 1), ("MSET", KEY.entry, "x"),
)  # fmt: skip
NO_WRITING: tuple[Command, ...] = (
    ("SET", KEY.entry, "x"), ("SETRANGE", KEY.entry, 0, "x"), ("DEL", KEY.entry), ("UNLINK", KEY.entry),
    ("PEXPIRE", KEY.entry, 1), ("PERSIST", KEY.entry), ("HSET", KEY.entry, "a", "b"), ("PUBLISH", KEY.channel, "x"),
)  # fmt: skip
NO_LETTERS: tuple[Command, ...] = (
    ("ZRANGE", "cache:dead1", 0, -1), ("ZREVRANGE", "cache:dead1", 0, -1), ("ZADD", "cache:dead1", 1, "x"),
    ("DEL", "cache:dead1"), ("ZREM", "cache:dead1", "x"),
)  # fmt: skip
NO_TAGS: tuple[Command, ...] = (
    ("GET", "cache:c1"),
    ("SET", "cache:c1", 1),
    ("ZREM", "cache:p1", "x"),
    ("ZRANGEBYSCORE", "cache:t1:{x}", 0, 1),
    ("HMGET", "cache:g1:{x}", "last"),
    ("DEL", "cache:t1:{x}"),
)
NO_FEEDING: tuple[Command, ...] = (("SET", "cache:s1", "x"), ("DEL", "cache:s1"))  # fmt: skip
SHARES = budget_keys("cache")[0]
NO_BUDGETS: tuple[Command, ...] = (("ZADD", SHARES, 1, "x"), ("ZREM", SHARES, "x"), ("DEL", SHARES))
ANY_ON_THE_BROKER: tuple[Command, ...] = (
    *NOBODY, OWN_SCRIPT, ("GET", "anything"), ("LPUSH", "other.refresh", "x"), ("SUBSCRIBE", "/1.celery.pidbox"),
    ("LRANGE", QUEUE, 0, -1), ("LINDEX", QUEUE, 0), ("LTRIM", QUEUE, 0, 1),
)  # fmt: skip
NO_REDELIVERY: tuple[Command, ...] = (("SET", "unacked_mutex", "x"), ("ZRANGE", "unacked_index", 0, -1))
# Doctor publishes and counts readers, and status scans.
OF_AN_OPERATOR: tuple[Command, ...] = (("SCAN", 0), ("PUBLISH", KEY.channel, "x"), ("CLIENT", "LIST"))
DENIED: dict[tuple[str, str], tuple[Command, ...]] = {
    ("cache", "reader"): (
        *ANY_ON_THE_CACHE, *NO_WRITING, *NO_LETTERS, *NO_TAGS, *NO_BUDGETS, *NO_FEEDING,
        ("ZADD", VERSIONS, 1, "1"), ("DEL", VERSIONS),
    ),
    ("cache", "invalidator"): (
        *ANY_ON_THE_CACHE, *NO_LETTERS, *NO_BUDGETS, *NO_FEEDING, ("SET", KEY.entry, "x"), ("SET", VERSIONS, "x"),
        ("ZADD", VERSIONS, 1, "1"), ("ZREM", VERSIONS, "1"), ("ZADD", "cache:t1:{x}", 1, "x"),
        ("ZREM", "cache:t1:{x}", "x"), ("SET", "cache:p1", "x"),
    ),
    ("cache", "operator"): (
        *(command for command in (*ANY_ON_THE_CACHE, *NO_WRITING) if command not in OF_AN_OPERATOR),
        ("ZADD", "cache:dead1", 1, "x"), ("DEL", "x"), *NO_BUDGETS,
    ),
    # It scans for tags of which nothing is left.
    ("cache", "worker"): tuple(command for command in ANY_ON_THE_CACHE if command != ("SCAN", 0)),
    ("broker", "publisher"): (
        *ANY_ON_THE_BROKER, ("BRPOP", QUEUE, 1), ("RPOP", QUEUE), ("DEL", QUEUE), ("GET", "unacked_mutex"),
        ("HGETALL", "unacked"), ("HGET", "unacked", "x"), ("PUBLISH", "/0.celery.pidbox", "x"), ("TYPE", QUEUE),
        ("SUBSCRIBE", "/0.celeryev/task.succeeded"), ("EVALSHA", "0" * 40, 0), ("LPUSH", "a.reply.celery.pidbox", "x"),
    ),
    ("broker", "operator"): (
        *ANY_ON_THE_BROKER, ("BRPOP", QUEUE, 1), ("DEL", QUEUE), ("GET", "elsewhere"),
        ("SREM", "_kombu.binding.cache.refresh", "x"), ("HGETALL", "unacked"), ("HGET", "unacked", "x"),
        ("ZREM", "unacked_index", "x"), ("PSUBSCRIBE", "/0.celeryev/*"), ("SUBSCRIBE", "/0.celery.pidbox"),
        ("PUBLISH", "/0.celeryev/task.succeeded", "x"), ("LPUSH", "worker@host.celery.pidbox", "x"), *NO_REDELIVERY,
    ),
    ("broker", "probe"): (
        *ANY_ON_THE_BROKER, ("BRPOP", QUEUE, 1), ("BRPOP", "cache.probe.host", 1), ("DEL", QUEUE), ("GET", "elsewhere"),
        ("SREM", "_kombu.binding.cache.refresh", "x"), ("HGET", "unacked", "x"), ("PUBLISH", "/0.celery.pidbox", "x"),
        ("SUBSCRIBE", "/0.celery.pidbox"), ("PUBLISH", "/0.celeryev/task.succeeded", "x"),
        ("LPUSH", "worker@host.celery.pidbox", "x"),
    ),
    ("broker", "worker"): (*ANY_ON_THE_BROKER, ("GET", "elsewhere"), ("GET", "cache:e1:x")),
    ("broker", "flower"): (
        *ANY_ON_THE_BROKER, ("LPUSH", QUEUE, "x"), ("RPUSH", QUEUE, "x"), ("BRPOP", QUEUE, 1), ("DEL", QUEUE),
        ("HGET", "unacked", "x"), ("HDEL", "unacked", "x"), ("ZREM", "unacked_index", "x"), ("DEL", "unacked"),
        ("SADD", "_kombu.binding.cache.refresh", "x"), *NO_REDELIVERY,
    ),
}  # fmt: skip


@pytest.fixture
def entry(users: Users) -> Iterator[bytes]:
    """An entry under `KEY`; it must be unchanged when the test is over."""
    with redis.Redis.from_url(users.cache.url()) as admin:
        admin.set(KEY.entry, ENTRY)
        yield ENTRY
        assert admin.get(KEY.entry) == ENTRY
        admin.delete(KEY.entry, KEY.record)


@pytest.mark.promise(
    "Contract and operation", "Each user of `deploy/redis` may do what its component does, and nothing more"
)
@pytest.mark.parametrize(
    ("server", "user", "command"),
    [(*who, command) for who, commands in DENIED.items() for command in commands],
    ids=lambda value: value if isinstance(value, str) else " ".join(map(str, value))[:40],
)
def test_a_user_is_denied(users: Users, server: str, user: str, command: Command) -> None:
    with users.client(server, user) as client, pytest.raises(ResponseError) as caught:
        client.execute_command(*command)
    assert isinstance(caught.value, NoPermissionError) or "no permissions" in str(caught.value)


@pytest.mark.parametrize("server", ["cache", "broker"])
def test_redis_denies_access_without_a_valid_user(users: Users, server: str) -> None:
    url = users.url(server, "worker")
    for stranger in (re.sub(r"//.*@", "//", url), re.sub(r"//.*@", "//:x@", url), re.sub(r":[^:]*@", ":wrong@", url)):
        with redis.Redis.from_url(stranger) as client, pytest.raises(RedisError, match=r"(?i)auth|password"):
            client.ping()


FORGERIES = (
    "return redis.call('SET', KEYS[1], 'forged')",
    "return redis.call('SETRANGE', KEYS[1], 0, 'forged')",
    "return redis.call('APPEND', KEYS[1], 'forged')",
    "return redis.call('DEL', KEYS[1])",
    "return redis.call('PEXPIRE', KEYS[1], 1)",
    "return redis.call('HSET', KEYS[1], 'a', 'b')",
    "return redis.call('RENAME', KEYS[2], KEYS[1])",
    "return redis.call('FLUSHALL')",
    "return redis.call('CONFIG', 'SET', 'maxmemory', '1')",
    "return redis.call('ACL', 'SETUSER', 'default', 'on', 'nopass')",
)


@pytest.mark.parametrize("user", ["reader", "operator"])
@pytest.mark.parametrize("script", FORGERIES)
def test_reader_and_operator_cannot_write_an_entry_by_a_custom_script(
    users: Users, entry: bytes, user: str, script: str
) -> None:
    with users.client("cache", user) as client:
        for text in (script, script.replace("redis.call", "redis.pcall")):
            with pytest.raises(ResponseError, match=r"(?i)permission|can't run this command|can't access|not allowed"):
                client.eval(text, 2, KEY.entry, KEY.record)
    assert entry  # the fixture checks that it is unchanged


@pytest.mark.parametrize("user", ["reader", "operator", "invalidator"])
def test_a_script_on_another_namespace_is_denied(users: Users, user: str) -> None:
    with users.client("cache", user) as client:
        text = "return redis.call('GET', ARGV[1])"
        with pytest.raises(NoPermissionError):
            client.eval(text, 1, OTHERS.entry, OTHERS.entry)
        # Not declared: then the command in the script is what is denied.
        with pytest.raises(ResponseError, match=r"(?i)permission|can't access"):
            client.eval(text, 1, KEY.entry, OTHERS.entry)


@pytest.mark.usefixtures("no_share_ends")
def test_a_worker_may_take_renew_and_release_a_budget_share(users: Users) -> None:
    share = Share("cache", "friends_of", "a", Budget(rate=10, concurrency=1), Budget(rate=10, concurrency=1))
    with users.client("cache", "worker") as client:
        store = LeaseStore(client)
        assert store.run(share.take(Urgency.MISS)) == 0
        assert store.run(share.renew()) > 0
        assert store.run(share.release(refund=True))


def test_the_acl_template_matches_the_key_prefixes_in_use() -> None:
    cache = (ROOT / "deploy/redis/cache.acl.template").read_text().replace("NAMESPACE", "cache")
    for name in (KEY.entry, KEY.record, KEY.channel, VERSIONS):
        prefix = name.partition("{")[0]
        assert f"~{prefix}* " in cache or f"&{prefix}*\n" in cache


def test_the_new_users_script_keeps_existing_passwords_and_files_only_the_owner_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    passwords = make_users(folder)
    files = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(files) == {"cache.acl", "broker.acl", "passwords"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert len(set(passwords.values())) == len(passwords) == 9
    assert make_users(folder) == passwords
    assert {path.name: path.read_text() for path in folder.iterdir()} == files
    for password in passwords.values():
        assert password not in files["cache.acl"] + files["broker.acl"]
    make_users(folder, "--namespace", "tenant.a", "--broker-db", "3", "--cache", "sentinel")
    assert "~tenant.a:e1:*" in (folder / "cache.acl").read_text()
    assert "&/3.celery.pidbox" in (folder / "broker.acl").read_text()
    assert [line.split()[1] for line in (folder / "sentinel.acl").read_text().splitlines()] == [
        "default", "finder", "peer",
    ]  # fmt: skip
    assert {"replica", "sentinel"} <= {line.split()[1] for line in (folder / "cache.acl").read_text().splitlines()}


def test_the_new_users_script_writes_the_environment_of_each_component(users: Users, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "passwords").write_text("".join(f"{' '.join(who)} {word}\n" for who, word in users.passwords.items()))
    at = [f"{server.host}:{server.port}" for server in (users.cache, users.broker)]
    make_users(folder, "--addresses", *at)
    files = list(folder.glob("*.env"))
    assert {path.stem for path in files} == {"reader", "invalidator", "worker", "operator", "flower", "probe"}
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        environment = dict(line.split("=", 1) for line in path.read_text().splitlines())
        assert environment.pop("CACHE_NAMESPACE") == "cache"
        variables = {"CACHE_BROKER_URL"} | ({"CACHE_REDIS_URL"} if path.stem not in {"flower", "probe"} else set())
        assert environment.keys() == variables
        for url in environment.values():
            with redis.Redis.from_url(url) as client:
                assert client.ping()


BROKER = "redis://publisher:BROKER@b/3"
VERIFIED = "ssl_cert_reqs=required"
FOUND = "sentinel_username=finder&sentinel_password=FINDER"
ADDRESSES = {
    "TLS": (("single", f"rediss://c:1?{VERIFIED}", "b"), f"rediss://reader:CACHE@c:1/0?{VERIFIED}", BROKER),
    "a database": (("single", "redis://c:1/4", "b"), "redis://reader:CACHE@c:1/4", BROKER),
    "cluster": (("cluster", "c1:1,c2:2", "redis://b"), "redis+cluster://reader:CACHE@c1:1,c2:2", BROKER),
    "Sentinels": (
        ("sentinel", f"rediss+sentinel://s1,s2/main?{VERIFIED}", "b"),
        f"rediss+sentinel://reader:CACHE@s1,s2/main/0?{VERIFIED}&{FOUND}", BROKER,
    ),
    "a broker behind Sentinels": (
        ("single", "c:1", "redis+sentinel://s1,s2/main", "--broker", "sentinel"),
        "redis://reader:CACHE@c:1/0", f"redis+sentinel://publisher:BROKER@s1,s2/main/3?{FOUND}",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "cache", "broker"), ADDRESSES.values(), ids=ADDRESSES)
def test_the_new_users_script_writes_urls_of_any_topology_and_with_tls(
    tmp_path: Path, given: tuple[str, str, str], cache: str, broker: str
) -> None:
    topology, *addresses = given
    passwords = make_users(tmp_path, "--cache", topology, "--broker-db", "3", "--addresses", *addresses)
    found = passwords.get(("sentinel", "finder"), "")
    sourced = f"set -a; . '{tmp_path}/reader.env'; env"
    shell = subprocess.run(["/bin/sh", "-c", sourced], env={}, capture_output=True, text=True, check=True)
    written = dict(line.split("=", 1) for line in shell.stdout.splitlines())
    for variable, expected in ("CACHE_REDIS_URL", cache), ("CACHE_BROKER_URL", broker):
        filled = expected.replace("CACHE", passwords["cache", "reader"]).replace("FINDER", found)
        assert written[variable] == filled.replace("BROKER", passwords["broker", "publisher"])
    ReaderSettings(redis_url=written["CACHE_REDIS_URL"], broker_url=written["CACHE_BROKER_URL"])


@pytest.mark.parametrize(
    ("topology", "address", "says"),
    [
        ("single", "redis+cluster://c", "CACHE='redis+cluster://c': expected HOST:PORT, or redis:// or rediss://…"),
        ("single", "redis://me:secret@c", "without a user"),
        ("single", "", "expected HOST:PORT"),
        ("sentinel", "s1,s2", "name the master, as in redis+sentinel://one,two/mymaster"),
        ("cluster", "redis://c", "or redis+cluster:// or rediss+cluster://…"),
    ],
)
def test_the_new_users_script_rejects_a_wrong_address_in_one_line_and_writes_nothing(
    tmp_path: Path, topology: str, address: str, says: str
) -> None:
    folder = tmp_path / "made"
    done = subprocess.run(
        [sys.executable, str(NEW_USERS), str(folder), "--cache", topology, "--addresses", address, "b:1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert "secret" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not folder.exists()


def test_the_broker_s_configuration_bounds_a_message_before_a_worker_reads_it() -> None:
    lines = (ROOT / "deploy/redis-broker.conf").read_text().splitlines()
    bound = [("proto-max-bulk-len", line.split()[1]) for line in lines if line.startswith("proto-max-bulk-len ")]
    assert bound
    with RedisServer.start(extra_config=bound) as server:
        with redis.Redis.from_url(server.url()) as client:
            client.lpush("queue", b"x" * MAX_MESSAGE_BYTES)
            # Redis answers and closes while the rest is still being sent: either may be seen first.
            with pytest.raises((ResponseError, redis.ConnectionError, OSError)):
                client.lpush("queue", b"x" * 4 * MAX_MESSAGE_BYTES)
        with redis.Redis.from_url(server.url()) as another:
            assert another.llen("queue") == 1


def test_no_template_holds_a_password() -> None:
    for template in (ROOT / "deploy/redis").glob("*.template"):
        lines = template.read_text().splitlines()
        users = [line for line in lines if line.startswith("user ") and not line.startswith("user default")]
        assert users
        assert all(" on #SHA256_OF_PASSWORD " in line for line in users)
        assert not re.search(r"[>#][0-9a-f]{64}|on >|nopass", template.read_text())
