"""Durations: numbers of seconds, timedelta, or text such as ``"1h30m"``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, TypeAlias

from api_client.protocol.params import plain

Duration: TypeAlias = float | int | timedelta | str

MAX_SECONDS: Final = 100 * 365 * 86_400.0
"""A hundred years: Python's locks and sockets refuse a timeout three times as long."""

ALLOWED = 'seconds as a number, a timedelta, or text such as "250ms", "90s", "1h30m", "2d"'
_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)", re.ASCII)
_PLAIN = re.compile(r"\s*\d+(?:\.\d+)?\s*", re.ASCII)


def seconds(value: Duration) -> float:
    """Return ``value`` in seconds.

    Raises:
        ValueError: it is not a duration, negative, or more than a hundred years; the message states the allowed values.
    """
    value = plain(value)
    if isinstance(value, timedelta):
        total = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{repr(value)[:80]} is not a duration: expected {ALLOWED}")
    elif isinstance(value, str):
        total = _from_text(value)
    else:
        total = _from_number(value)
    if not 0 <= total <= MAX_SECONDS:  # false for NaN
        raise ValueError(f"{str(value)[:80]!r} is not a duration: expected at most a hundred years")
    return total


def share(value: float | str) -> float:
    """Return a share, given as a number from 0 to 1 or text such as ``"10%"``.

    Raises:
        ValueError: it is not a share; the message states the allowed values.
    """
    value = plain(value)
    text = value.strip() if isinstance(value, str) else ""
    part = _PLAIN.fullmatch(text.removesuffix("%"))
    if part is not None:
        value = float(part[0]) / 100 if text.endswith("%") else float(part[0])
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f'{repr(value)[:80]} is not a share: expected 0 to 1, or text such as "10%"')
    return float(value)


def _from_number(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        raise ValueError(f"an integer that large is not a duration: expected {ALLOWED}") from None


def _from_text(text: str) -> float:
    if _PLAIN.fullmatch(text):
        return float(text)
    position, total = 0, 0.0
    while part := _PART.match(text, position):
        total += float(part[1]) * _SECONDS_PER_UNIT[part[2]]
        position = part.end()
    if position == 0 or text[position:].strip():
        raise ValueError(f"{text[:80]!r} is not a duration: expected {ALLOWED}")
    return total
