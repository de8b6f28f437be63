"""Redis' wire protocol as a proxy needs it: the ends of frames, and their contents."""

from __future__ import annotations

from typing import Any

import hiredis

_LINE_END = b"\r\n"
_BULK = frozenset(b"$=!")
_AGGREGATES = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}  # the number of values of an element
_ATTRIBUTES = ord("|")


def frame_end(data: bytes, start: int = 0) -> int | None:
    """Return where the frame that begins at ``start`` ends; None while it is not whole. RESP2 and RESP3."""
    line = data.find(_LINE_END, start)
    if line < 0:
        return None
    kind, end = data[start], line + len(_LINE_END)
    if kind in _BULK:
        length = int(data[start + 1 : line])
        end += length + len(_LINE_END) if length >= 0 else 0
        return end if end <= len(data) else None
    if kind not in _AGGREGATES:
        return end
    # Attributes come before their value, and are in one frame with it.
    elements = int(data[start + 1 : line]) * _AGGREGATES[kind] + (kind == _ATTRIBUTES)
    for _ in range(elements):
        inner = frame_end(data, end)
        if inner is None:
            return None
        end = inner
    return end


def command_of(frame: bytes) -> tuple[bytes, ...]:
    """Return a request as its words."""
    return tuple(reply_of(frame))


def reply_of(frame: bytes) -> Any:
    """Return the value of a reply; an error is a `hiredis.ReplyError`, returned and not raised."""
    reader = hiredis.Reader()
    reader.feed(frame)
    return reader.gets()
