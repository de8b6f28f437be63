"""Provenance of a run: commit, machine, load, versions, options and seed, without which figures mean nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from benchmarks.errors import BenchError
from benchmarks.options import Options

PACKAGES: Final = (
    "refresher", "redis", "hiredis", "msgspec", "celery", "kombu", "neo4j", "numpy", "numba", "matplotlib",
    "aiocache", "cashews", "django", "django-cacheback", "django-redis", "dogpile.cache",
)  # fmt: skip
_PROBE_BYTES: Final = 1_000_000  # about as much as a run writes


def provenance(benchmark: str, options: Options, *, rounds: int, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data to store beside the results, at the start of a run; the load after it is added later."""
    return {
        "benchmark": benchmark,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "rounds": rounds,
        "seed": options.seed,
        "machine": {
            "processor": _processor(),
            "cores": str(os.cpu_count() or "?"),
            "system": f"{platform.system()} {platform.release()}",
            "python": f"{platform.python_implementation()} {platform.python_version()}",
        },
        "load": {"before": average_load()},
        "versions": {package: found for package in PACKAGES if (found := _version(package))},
        "options": {name: str(value) for name, value in (options.recorded() | dict(more)).items()},
    }


def heading(content: Mapping[str, Any]) -> str:
    """Format provenance in a few lines for people."""

    def listed(values: Mapping[str, str], joint: str = " ") -> str:
        return ", ".join(f"{name.replace('_', ' ')}{joint}{value}" for name, value in values.items())

    lines = [
        f"{content['began']}, commit {content['commit']}, rounds {content['rounds']}, seed {content['seed']}",
        f"{listed(content['machine'])}, load {listed(content['load'])}",
        listed(content["versions"]),
        listed(content["options"]),
    ]
    if content["options"].get("quick") == "True":
        lines.append("a quick run: it shows that all works; no figure of it, and no target, says how fast or how well")
    return "\n".join(lines)


def make_folder(out: Path) -> Path:
    """Make the folder for the results, before minutes are spent on results that can't be stored.

    Raises:
        BenchError: the folder can't be made, or not be written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        raise BenchError(f"the results can't be written to {out}: {error.strerror}") from error
    return out


def _commit() -> str:
    """Return the commit of this checkout, with a mark if files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout[:12]
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "not recorded"
    return f"{commit} with changes" if changed else commit


def average_load() -> str:
    """Return the average number of running and waiting processes over the last minute."""
    return f"{os.getloadavg()[0]:.2f}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    with suppress(OSError):  # not Linux
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
