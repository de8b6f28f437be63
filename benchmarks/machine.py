"""What a measurement was made on: without it a figure says nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

PACKAGES: Final = (
    "refresher", "redis", "hiredis", "msgspec", "celery", "kombu", "neo4j", "uvloop", "numpy", "numba", "matplotlib",
    "aiocache", "cashews", "celery-once", "celery-singleton", "django", "django-cacheback", "django-redis",
    "dogpile.cache",
)  # fmt: skip


def machine() -> dict[str, str]:
    """Return processor, cores, memory, system and Python."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count() or "?"),
        "load_before": f"{os.getloadavg()[0]:.2f}",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def versions() -> dict[str, str]:
    """Return the installed versions of what is measured, ``-`` for what is not installed."""
    return {package: _version(package) for package in PACKAGES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()
