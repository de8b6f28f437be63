"""What a run of a benchmark was: machine, versions, options and seed, without which its figures say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from benchmarks.errors import BenchError
from benchmarks.machine import machine, versions

_PROBE_BYTES: Final = 1_000_000  # about what a run writes


def about(benchmark: str, *, seed: int, options: Mapping[str, Any], servers: Mapping[str, str]) -> dict[str, Any]:
    """Return what is kept beside the results.

    Args:
        benchmark: its name, which is its command's and its file's.
        seed: of everything that was drawn.
        options: what was asked for, as text in the end; no password, no path.
        servers: versions of the servers that took part, by name.
    """
    return {
        "benchmark": benchmark,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions() | dict(servers),
        "seed": seed,
        "options": {name: str(value) for name, value in options.items()},
    }


def heading(content: Mapping[str, Any]) -> str:
    """Return the same in a few lines for people."""
    hardware, software = content["machine"], content["versions"]
    asked = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in content["options"].items())
    lines = [
        ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in hardware.items()),
        ", ".join(f"{name} {value}" for name, value in software.items() if value != "-"),
        f"seed {content['seed']}; {asked}",
    ]
    if content["options"].get("quick") == "True":
        lines.append("a quick run: it shows that all works; no figure of it, and no target, says how fast or how well")
    return "\n".join(lines)


def made_folder(out: Path) -> Path:
    """Make the folder for the results, before minutes are spent on what can't be kept.

    Raises:
        BenchError: it can't be made, or nothing can be written into it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        raise BenchError(f"the results can't be written to {out}: {error.strerror}") from error
    return out
