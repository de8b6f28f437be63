"""Files that the queries' modules import, as only their changes concern the worker.

``python -m refresher.dev.imports MODULE …`` prints those of a fresh process, one per line.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from refresher.query_modules import import_from_working_directory, import_queries

_MAX_SECONDS: Final = 60.0


def imported_files() -> set[Path]:
    """Return the Python files that this process has imported."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {Path(file).resolve() for file in files if file}


def files_imported_anew(modules: Sequence[str], environ: Mapping[str, str]) -> Collection[Path] | None:
    """Return the files that the modules import now, or None if they can't be imported."""
    try:
        done = subprocess.run(  # noqa: S603 - this module, without a shell
            [sys.executable, "-m", __name__, *modules],
            env=environ, capture_output=True, text=True, timeout=_MAX_SECONDS, check=True,
        )  # fmt: skip
    except subprocess.SubprocessError:
        return None
    return {Path(line) for line in done.stdout.splitlines()}


if __name__ == "__main__":
    import_from_working_directory()
    import_queries(sys.argv[1:])
    sys.stdout.write("".join(f"{path}\n" for path in imported_files()))
