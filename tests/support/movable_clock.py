"""Processes whose wall clock a test moves or stops while they run. Their monotonic clock is unchanged.

The dynamic linker puts a library before libc's own functions: the servers, Python and Celery are those that users run.
Between two calls of them Valkey 9 advances its time by the processor's counter, for a millisecond at most; not on a
processor that has none that counts evenly, and without /proc/cpuinfo it takes its own for such.
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
from tests.servers.redis_binaries import redis_under_test
from tests.support.requirements import skip_or_fail
from tests.support.waiting import MAX_WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_US: Final = 1_900_000_000_000_000
"""Where a clock that stands still begins, in microseconds since 1970."""
SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile struct { long long now_us, shift_seconds; } *set; /* now_us is 0 while the clock runs */

__attribute__((constructor)) static void open_clock(void) {
  int file = open(getenv("MOVABLE_CLOCK"), O_RDONLY);
  set = mmap(0, sizeof *set, PROT_READ, MAP_SHARED, file, 0);
  if (file < 0 || set == MAP_FAILED) abort();
  close(file);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
  FILE *(*open)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen64");
  if (strcmp(path, "/proc/cpuinfo")) return open(path, mode);
  errno = ENOENT;
  return NULL;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int is_wall_clock = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  /* jemalloc reads a clock before any constructor has run. */
  if (!is_wall_clock || !set) return syscall(SYS_clock_gettime, clock, now);
  long long now_us = set->now_us;
  if (now_us) {
    now->tv_sec = now_us / 1000000;
    now->tv_nsec = now_us % 1000000 * 1000;
  } else if (syscall(SYS_clock_gettime, clock, now)) {
    return -1;
  }
  now->tv_sec += set->shift_seconds;
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *result) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (result) *result = exact.tv_sec;
  return exact.tv_sec;
}
"""


class MovableClock:
    """A clock for any number of processes, with ``env`` in their environment. Files go to ``folder``."""

    def __init__(self, folder: Path) -> None:
        if sys.platform != "linux" or shutil.which("gcc") is None:
            skip_or_fail("a clock that tests move needs Linux and gcc")
        folder.mkdir(parents=True, exist_ok=True)
        source, library, state = folder / "clock.c", folder / "clock.so", folder / "clock"
        source.write_text(SOURCE)
        command = ["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]
        subprocess.run(command, check=True, timeout=MAX_WAIT_SECONDS)
        state.write_bytes(bytes(16))
        with state.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 16)
        self.env = {"MOVABLE_CLOCK": str(state), "LD_PRELOAD": str(library)}
        self._folder = folder

    @property
    def now_us(self) -> int:
        """Where the clock stands, in microseconds since 1970; 0 while it runs."""
        return int(struct.unpack_from("=q", self._memory)[0])

    @now_us.setter
    def now_us(self, value: int) -> None:
        struct.pack_into("=q", self._memory, 0, value)

    def goes_off_by(self, seconds: int) -> None:
        """Be this far ahead of the machine's clock from now on; behind it, with a negative number."""
        struct.pack_into("=q", self._memory, 8, seconds)

    def redis_program(self) -> Path:
        """Return the Redis under test as a program that uses this clock."""
        program = self._folder / "redis-server"
        words = " ".join(f'{name}="{value}"' for name, value in self.env.items())
        program.write_text(f'#!/bin/sh\nexport {words}\nexec "{redis_under_test()}" "$@"\n')
        program.chmod(0o700)
        return program


@dataclass(frozen=True)
class ClockedRedis:
    """A real Redis, and its clock, which stands still until a test moves it, forward or back.

    TIME in the scripts and the expiry of keys use the same clock. An expired key goes at its next access, or a little
    earlier: access it after each move, and no test sees the difference.
    """

    server: RedisServer
    clock: MovableClock


@contextmanager
def start_clocked_redis(folder: Path) -> Iterator[ClockedRedis]:
    """Start a Redis with a clock of its own, whose files go to ``folder``."""
    clock = MovableClock(folder)
    clock.now_us = START_US
    with RedisServer.start(binary=clock.redis_program()) as server:
        yield ClockedRedis(server, clock)
