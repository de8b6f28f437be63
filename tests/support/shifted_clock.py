"""Processes whose wall clock a test shifts while they run. Their monotonic clock is unchanged.

The dynamic linker puts a library before libc's own functions: Redis, Python and Celery are those that users run.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

from refresher.embedded.redis_server import find_redis_server
from tests.support.requirements import skip_or_fail
from tests.support.waiting import MAX_WAIT_SECONDS

SOURCE: Final = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *shift_seconds;

__attribute__((constructor)) static void open_shift(void) {
  int file = open(getenv("CLOCK_SHIFT"), O_RDONLY);
  shift_seconds = mmap(0, sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
  if (file < 0 || shift_seconds == MAP_FAILED) abort();
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += *shift_seconds;
  return result;
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


class ShiftedClock:
    """A clock for any number of processes, with ``env`` in their environment. Files go to ``folder``."""

    def __init__(self, folder: Path) -> None:
        if sys.platform != "linux" or shutil.which("gcc") is None:
            skip_or_fail("a clock that tests move needs Linux and gcc")
        source, library, shift = folder / "clock.c", folder / "clock.so", folder / "shift"
        source.write_text(SOURCE)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True, timeout=MAX_WAIT_SECONDS)  # noqa: S607 - whichever gcc there is
        shift.write_bytes(bytes(8))
        with shift.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)
        self.env = {"CLOCK_SHIFT": str(shift), "LD_PRELOAD": str(library)}
        self._folder = folder

    def goes_off_by(self, seconds: int) -> None:
        """Be this far ahead of the machine's clock from now on; behind it, with a negative number."""
        struct.pack_into("=q", self._memory, 0, seconds)

    def redis_program(self) -> Path:
        """Return a ``redis-server`` that uses this clock."""
        program = self._folder / "redis-server"
        words = " ".join(f'{name}="{value}"' for name, value in self.env.items())
        program.write_text(f'#!/bin/sh\nexport {words}\nexec "{find_redis_server()}" "$@"\n')
        program.chmod(0o700)
        return program
