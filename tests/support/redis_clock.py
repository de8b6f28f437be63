"""A real Redis whose clock stands still until a test moves it, forward or back.

TIME in the scripts and the expiry of keys use the same clock. The dynamic linker puts it before libc's, so both the
server and the scripts are the ones that users run. An expired key goes at its next access, or a little earlier: access
it after each move, and no test sees the difference.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from refresher.embedded import RedisServer
from refresher.embedded.redis_server import find_redis_server
from tests.support.requirements import skip_or_fail

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_US: Final = 1_900_000_000_000_000
SOURCE: Final = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>

static volatile long long *now_us;

__attribute__((constructor)) static void open_clock(void) {
  int file = open(getenv("FROZEN_CLOCK"), O_RDONLY);
  now_us = mmap(0, sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
  if (file < 0 || now_us == MAP_FAILED) abort();
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  long long now = *now_us;
  (void)zone;
  time->tv_sec = now / 1000000;
  time->tv_usec = now % 1000000;
  return 0;
}
"""


class FrozenClock:
    """The clock of one server, in microseconds since 1970."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(struct.pack("=q", START_US))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)

    @property
    def now_us(self) -> int:
        """The result of TIME."""
        return int(struct.unpack_from("=q", self._memory)[0])

    @now_us.setter
    def now_us(self, value: int) -> None:
        struct.pack_into("=q", self._memory, 0, value)


@dataclass(frozen=True)
class ClockedRedis:
    """A server, and the clock that it uses."""

    server: RedisServer
    clock: FrozenClock


@contextmanager
def start_clocked_redis(folder: Path) -> Iterator[ClockedRedis]:
    """Start a Redis with a clock of its own, whose files go to ``folder``."""
    if sys.platform != "linux" or shutil.which("gcc") is None:
        skip_or_fail("a clock that tests move needs Linux and gcc")
    source, library, program = folder / "clock.c", folder / "clock.so", folder / "redis-server"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True, timeout=60)  # noqa: S607 - whichever gcc there is
    clock = FrozenClock(folder / "clock")
    program.write_text(
        f'#!/bin/sh\nexport FROZEN_CLOCK="{folder}/clock" LD_PRELOAD="{library}"\nexec "{find_redis_server()}" "$@"\n'
    )
    program.chmod(0o700)
    with RedisServer.start(binary=program) as server:
        yield ClockedRedis(server, clock)
