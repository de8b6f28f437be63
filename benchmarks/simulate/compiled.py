"""Compiles with numba, and keeps what was compiled in the user's cache folder: never beside the sources."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from benchmarks.errors import BenchError

try:
    _numba: Any = import_module("numba")  # what its releases say of their types differs
except ImportError as _error:
    raise BenchError("the simulation needs numba: `make bench` installs it") from _error

F = TypeVar("F", bound=Callable[..., object])

_DIGEST_DIGITS: Final = 16


def compiled(function: F) -> F:
    """Compile ``function`` when it is first called with arguments of some types; errors are those of the types.

    Divisions by 0 follow IEEE 754, as numpy's do, and nothing is reordered: results are those of CPython.
    """
    return cast("F", _numba.njit(cache=_keeps, error_model="numpy")(function))


def compiled_within(function: F) -> F:
    """Compile ``function`` for what is compiled alone: without a way in from Python, which takes as long to compile.

    Python must not call it: it would jump to where nothing is.
    """
    within = _numba.njit(cache=_keeps, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
    return cast("F", within(function))


def _cache_folder() -> Path | None:
    """Return a folder of our own that can be written to; None: each process compiles for itself.

    Its name is made of all sources here: numba looks at a function's own file alone, and what that one calls may have
    changed.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:_DIGEST_DIGITS]
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(home).expanduser() / "refresher" / f"simulate-{digest}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):  # a RuntimeError: there is no home
        return None


def _set_up_cache() -> bool:
    folder = _cache_folder()
    if folder is None:
        return False
    _numba.config.CACHE_DIR = str(folder)
    return True


_keeps: Final = _set_up_cache()
