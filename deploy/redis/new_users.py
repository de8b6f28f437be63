"""Generates the ACL files of cache and broker, with random passwords: ``python3 deploy/redis/new_users.py DIRECTORY``.

DIRECTORY, created with mode 0700, gets ``cache.acl`` and ``broker.acl`` (for ``aclfile`` in the two redis.conf; they
contain only hashes) and ``passwords`` (one line each: server, user, password). Existing passwords are kept, so run it
again after a change of a template, then ``ACL LOAD`` on each server.

``--cache cluster`` adds the user of replicas to the cache's, ``--cache sentinel`` also that of the Sentinels, and
creates ``sentinel.acl`` for the Sentinels themselves; ``--broker sentinel`` does the same for the broker. With
``--broker rabbitmq`` the broker's users, with hashes and permissions, are in ``broker.json``, not ``broker.acl``:
``rabbitmqctl import_definitions broker.json`` adds them.

``--addresses CACHE BROKER``, such as ``--addresses cache:6379 broker:6380``, also writes the environment of each
component (``reader.env``, ``worker.env`` and so on), so that no password has to be copied. Each is HOST:PORT, or the
URL without a user: ``rediss://cache:6379?ssl_ca_certs=/etc/ssl/ours.pem``, ``redis+sentinel://one,two/mymaster``,
``amqps://broker:5671/VHOST``.

``--redis-7.0`` leaves out the permissions for commands of later versions, which Redis 7.0 refuses to load.

To choose a password: ``printf %s "$PASSWORD" | sha256sum`` prints what follows the # in an ACL file.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import secrets
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

PLACEHOLDER = "#SHA256_OF_PASSWORD"
# The templates that a server's topology adds to its own.
MORE_TEMPLATES = {"single": (), "cluster": ("replica",), "sentinel": ("replica", "watched")}
RABBITMQ = "rabbitmq"
# What client libraries send to Redis >= 7.2 and Valkey.
LATER_THAN_7_0 = re.compile(r" \+client\|(setinfo|no-touch)\b")
# The schemes of a URL, by topology: without TLS, and with it.
SCHEMES = {
    "single": ("redis", "rediss"), "cluster": ("redis+cluster", "rediss+cluster"),
    "sentinel": ("redis+sentinel", "rediss+sentinel"), RABBITMQ: ("amqp", "amqps"),
}  # fmt: skip
VARIABLES = {"cache": "CACHE_REDIS_URL", "broker": "CACHE_BROKER_URL"}
# The users of each component on cache and broker; "": it does not use the cache.
COMPONENTS = {
    "reader": ("reader", "publisher"), "invalidator": ("invalidator", "publisher"), "worker": ("worker", "worker"),
    "operator": ("operator", "operator"), "flower": ("", "flower"), "probe": ("", "probe"),
}  # fmt: skip
# What RabbitMQ's users may configure, write and read: regular expressions of queues and exchanges.
_WORKER, _FLOWER = r"^(NAMESPACE\.(refresh|probe\.).*|celery.*|.*celery\.pidbox)$", r"^(celeryev.*|.*celery\.pidbox)$"
RABBITMQ_RIGHTS = {
    # Readers: publish to a queue that a worker has declared, and query its length. They cannot consume.
    "publisher": ("^$", r"^NAMESPACE\.refresh(-miss)?\.quorum$", "^$"),
    # The operator's commands: as publisher, and doctor queries workers. A user that may query workers may also stop
    # them.
    "operator": (
        r"^(.*reply\.)?celery\.pidbox$",
        r"^(NAMESPACE\.refresh(-miss)?\.quorum|(.*reply\.)?celery\.pidbox)$",
        r"^.*reply\.celery\.pidbox$",
    ),
    # Declares the queues, including those of retry pauses and of probe.py, consumes, sends events, replies to remote
    # control.
    "worker": (_WORKER, _WORKER, _WORKER),
    "probe": (_WORKER, _WORKER, _WORKER),
    # Receives events, queries workers.
    "flower": (_FLOWER, _FLOWER, _FLOWER),
}


def main() -> None:
    """Write the files."""
    arguments = _parsed()
    os.umask(0o077)
    arguments.directory.mkdir(parents=True, exist_ok=True)
    kept = arguments.directory / "passwords"
    passwords = _read(kept)
    topologies = {of: getattr(arguments, of) for of in VARIABLES}
    files = {of: (of, *MORE_TEMPLATES[topology]) for of, topology in topologies.items() if topology != RABBITMQ}
    if "sentinel" in (arguments.cache, arguments.broker):
        files["sentinel"] = ("sentinel",)
    for server, parts in files.items():
        template = "".join(
            Path(__file__).with_name(f"{part}.acl.template").read_text(encoding="utf-8") for part in parts
        )
        text = template.replace("NAMESPACE", arguments.namespace).replace("/DB.", f"/{arguments.broker_db}.")
        text = LATER_THAN_7_0.sub("", text) if arguments.is_redis_7_0 else text
        (arguments.directory / f"{server}.acl").write_text(_filled(text, server, passwords), encoding="utf-8")
    if arguments.broker == RABBITMQ:
        (arguments.directory / "broker.json").write_text(_definitions(arguments, passwords), encoding="utf-8")
    lines = [f"{server} {user} {password}\n" for (server, user), password in passwords.items()]
    kept.write_text("".join(lines), encoding="utf-8")
    if arguments.addresses:
        _write_environments(arguments, passwords)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Make the ACL files of cache and broker, with random passwords.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--namespace", default="cache", help="CACHE_NAMESPACE (default: cache)")
    parser.add_argument("--cache", choices=MORE_TEMPLATES, default="single", help="what the cache is (default: single)")
    parser.add_argument(
        "--broker",
        choices=("single", "sentinel", RABBITMQ),
        default="single",
        help="what the broker is (default: single)",
    )
    parser.add_argument("--broker-db", type=int, default=0, help="the database in CACHE_BROKER_URL (default: 0)")
    parser.add_argument(
        "--addresses", nargs=2, metavar=("CACHE", "BROKER"), help="HOST:PORT or URL: write NAME.env, too"
    )
    parser.add_argument("--redis-7.0", dest="is_redis_7_0", action="store_true", help="the servers are Redis 7.0")
    arguments = parser.parse_args()
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", arguments.namespace):
        sys.exit("error: a namespace is 1 to 64 of A-Z a-z 0-9 _ . -")
    if arguments.addresses:
        _check_addresses(arguments)
    return arguments


def _check_addresses(arguments: argparse.Namespace) -> None:
    for server, address in zip(VARIABLES, arguments.addresses, strict=True):
        topology = getattr(arguments, server)
        allowed = SCHEMES[topology]
        parts = urlsplit(_as_url(address, topology))
        shown = f"--addresses {server.upper()}={re.sub('//.*@', '//…@', address)!r}"  # without a password
        if parts.scheme not in allowed or not parts.netloc or "@" in parts.netloc:
            begins = " or ".join(f"{one}://" for one in allowed)
            sys.exit(f"error: {shown}: expected HOST:PORT, or {begins}… without a user")
        if topology == "sentinel" and parts.path in {"", "/"}:
            sys.exit(f"error: {shown}: name the master, as in {allowed[0]}://one,two/mymaster")


def _write_environments(arguments: argparse.Namespace, passwords: dict[tuple[str, str], str]) -> None:
    for component, users in COMPONENTS.items():
        lines = [f"CACHE_NAMESPACE={arguments.namespace}"]
        for (server, variable), address, user in zip(VARIABLES.items(), arguments.addresses, users, strict=True):
            if user:
                database = arguments.broker_db if server == "broker" else 0
                login = f"{user}:{passwords[server, user]}"
                url = _url(address, getattr(arguments, server), login, database, passwords.get(("sentinel", "finder")))
                lines.append(f"{variable}={_quoted(url)}")
        path = arguments.directory / f"{component}.env"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _quoted(url: str) -> str:
    # A shell would end the assignment at an ampersand; systemd and Compose take the quotes off, too.
    return f"'{url}'" if "&" in url else url


def _as_url(address: str, topology: str) -> str:
    return address if "://" in address else f"{SCHEMES[topology][0]}://{address}"


def _definitions(arguments: argparse.Namespace, passwords: dict[tuple[str, str], str]) -> str:
    """Return RabbitMQ's definitions: vhost, users, permissions. Missing passwords are added to ``passwords``."""
    address = arguments.addresses[1] if arguments.addresses else "broker"
    vhost = unquote(urlsplit(_as_url(address, RABBITMQ)).path.rstrip("/")[1:]) or "/"
    users, permissions = [], []
    for user, rights in RABBITMQ_RIGHTS.items():
        password = passwords.setdefault(("broker", user), secrets.token_hex(24))
        salt = secrets.token_bytes(4)
        hashed = base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
        users.append(
            {"name": user, "tags": "", "hashing_algorithm": "rabbit_password_hashing_sha256", "password_hash": hashed}
        )
        configure, write, read = (one.replace("NAMESPACE", re.escape(arguments.namespace)) for one in rights)
        permissions.append({"user": user, "vhost": vhost, "configure": configure, "write": write, "read": read})
    return json.dumps({"vhosts": [{"name": vhost}], "users": users, "permissions": permissions}, indent=1) + "\n"


def _url(address: str, topology: str, login: str, database: int, finders: str | None) -> str:
    """Return the URL of a server or several, with a login; with the database where the address names none."""
    parts = urlsplit(_as_url(address, topology))
    path, query = parts.path.rstrip("/"), parts.query
    if topology in {"single", "sentinel"} and path.count("/") == (topology == "sentinel"):
        path += f"/{database}"
    if topology == "sentinel":
        query = "&".join(filter(None, (query, f"sentinel_username=finder&sentinel_password={finders}")))
    return parts._replace(netloc=f"{login}@{parts.netloc}", path=path, query=query).geturl()


def _read(path: Path) -> dict[tuple[str, str], str]:
    if not path.exists():
        return {}
    words = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return {(server, user): password for server, user, password in words}


def _filled(template: str, server: str, passwords: dict[tuple[str, str], str]) -> str:
    """Return an ACL file: one line per user, hashes, no comments. Missing passwords are added to ``passwords``."""
    lines: list[str] = []
    for line in template.splitlines():
        if line.startswith(" "):
            lines[-1] += line
        elif line and not line.startswith("#"):
            lines.append(line)
    for at, line in enumerate(lines):
        if PLACEHOLDER in line:
            password = passwords.setdefault((server, line.split()[1]), secrets.token_hex(24))
            lines[at] = line.replace(PLACEHOLDER, "#" + hashlib.sha256(password.encode()).hexdigest())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
