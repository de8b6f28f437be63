"""Compilation with numba, cached in the user's cache folder, and the policy in compiled form.

`tests/property/test_simulated_policy.py` checks that the policy equals the product's. The product decides read by read;
here the reads of a key are a Poisson process, so the first one that decides for a refresh is drawn at once.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np

from refresher.flow.policy import MEAN_GAIN

_numba: Any = import_module("numba")  # its releases differ in their types

F = TypeVar("F", bound=Callable[..., object])

_DIGEST_DIGITS: Final = 16


def compiled(function: F) -> F:
    """Compile ``function`` at its first call with given argument types, upon which type errors appear.

    Divisions by 0 follow IEEE 754, as in numpy, and nothing is reordered, so results are those of CPython.
    """
    return cast("F", _numba.njit(cache=_keeps, error_model="numpy")(function))


def compiled_within(function: F) -> F:
    """Compile ``function`` only for compiled callers, without an entry from Python, which would double the time.

    Python must not call it, since it would jump to an invalid address.
    """
    within = _numba.njit(cache=_keeps, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
    return cast("F", within(function))


def _cache_folder() -> Path | None:
    """Return a writable folder for compiled code, or None, upon which each process compiles for itself.

    Its name depends on all sources here, because numba considers only a function's own file, while its callees may have
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
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return None


def _set_up_cache() -> bool:
    folder = _cache_folder()
    if folder is None:
        return False
    _numba.config.CACHE_DIR = str(folder)
    return True


_keeps: Final = _set_up_cache()


# Compiled functions take plain constants.
_MEAN_GAIN: Final = MEAN_GAIN


@compiled
def smoothed(mean: float, sample: float) -> float:
    """Return the mean of `refresher.flow.policy.smooth` after another sample."""
    return (1 - _MEAN_GAIN) * mean + _MEAN_GAIN * sample


@compiled
def first_positive(now: float, soft: float, rate: float, delta: float, beta: float, ttl: float) -> float:
    """Draw the time of the first read after ``now`` that decides for a refresh, in seconds.

    Reads come at ``rate`` per second, and each one at ``left`` before the soft expiry is positive with the probability
    ``exp(−left/(β·δ))``. That is a Poisson process with a known rate, so its first point is drawn by inverting the
    integral of that rate.
    """
    scale = delta * beta
    if scale > 0 and now < soft:
        now = max(now, soft - ttl / 2)  # no lead is longer
        reached = math.exp((now - soft) / scale) + np.random.exponential() / (rate * scale)
        if reached < 1.0:
            return max(now, soft + scale * math.log(reached))
    return max(now, soft) + np.random.exponential() / rate
