"""Tests with two parameters: all combinations of their values only in `make test-long`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


def each_with_each(
    first: str, firsts: tuple[Any, Any], second: str, seconds: tuple[Any, Any], fixtures: Sequence[str] | None = None
) -> pytest.MarkDecorator:
    """Mark a test with two values for each of two names: each value once, and all four pairs in `make test-long`.

    For parameters that are independent of each other. ``fixtures`` are the names that are fixtures, parametrised by
    the value; by default both.
    """
    pairs = [(firsts[0], seconds[0]), (firsts[1], seconds[1])]
    others = [(firsts[0], seconds[1]), (firsts[1], seconds[0])]
    cases = [*pairs, *(pytest.param(*pair, marks=pytest.mark.long) for pair in others)]
    return pytest.mark.parametrize((first, second), cases, indirect=[first, second] if fixtures is None else fixtures)
