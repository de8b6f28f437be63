"""Measurements of the soak test: memory and open files of processes, from outside."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Self

import psutil

SAMPLE_SECONDS = 1.0
WARM_UP_SHARE = 1 / 3
MEBIBYTE = 1024 * 1024


def slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line through the points."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


class Sampler:
    """Takes memory and number of open files of named processes every second. ``pids`` says which they are by now."""

    def __init__(self, pids: Callable[[], dict[str, int]]) -> None:
        self._pids = pids
        self._memory: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._files: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def growth_mebibytes(self) -> dict[str, float]:
        """Return the growth of each process after its warm-up, by the line through its samples."""
        return {name: self._growth(points) / MEBIBYTE for name, points in self._memory.items()}

    def growth_files(self) -> dict[str, float]:
        """Return by how many open files each process has grown after its warm-up."""
        return {name: self._growth(points) for name, points in self._files.items()}

    def last_mebibytes(self) -> dict[str, float]:
        return {name: points[-1][1] / MEBIBYTE for name, points in self._memory.items()}

    @staticmethod
    def _growth(points: list[tuple[float, float]]) -> float:
        warm = points[int(len(points) * WARM_UP_SHARE) :]
        return slope(warm) * (warm[-1][0] - warm[0][0])

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            for name, pid in self._pids().items():
                try:
                    process = psutil.Process(pid)
                    now = time.monotonic()
                    self._memory[name].append((now, process.memory_info().rss))
                    self._files[name].append((now, process.num_fds()))
                except psutil.NoSuchProcess:
                    continue
