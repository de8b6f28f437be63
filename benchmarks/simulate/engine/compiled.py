"""Compilation with numba, cached in the user's cache folder, and the policy in compiled form.

`tests/property/test_simulated_policy.py` holds the policy equal to the product's own. The product decides read by read;
reads of a key are a Poisson process here, so the first one that decides for a refresh is drawn at once.
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

_numba: Any = import_module("numba")  # what its releases say of their types differs

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


# What is compiled takes plain constants.
_MEAN_GAIN: Final = MEAN_GAIN


@compiled
def smoothed(mean: float, sample: float) -> float:
    """Return the mean of `refresher.flow.policy.smooth`, after another one."""
    return (1 - _MEAN_GAIN) * mean + _MEAN_GAIN * sample


@compiled
def first_positive(now: float, soft: float, rate: float, delta: float, beta: float, ttl: float) -> float:
    """Draw when the first read after ``now`` decides for a refresh; seconds.

    Reads come at ``rate`` per second, and at ``left`` before the soft expiry each is positive with the probability
    ``exp(−left/(β·δ))``: a Poisson process whose rate is known, so its first point is drawn by inverting the integral
    of that rate.
    """
    scale = delta * beta
    if scale > 0 and now < soft:
        now = max(now, soft - ttl / 2)  # no lead is longer
        reached = math.exp((now - soft) / scale) + np.random.exponential() / (rate * scale)
        if reached < 1.0:
            return max(now, soft + scale * math.log(reached))
    return max(now, soft) + np.random.exponential() / rate
