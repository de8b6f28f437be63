"""Compression of payloads: Zstandard frames that say how large their content is.

The package is imported at the first compressed payload: an application that never meets one does not pay for it.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

LEVEL: Final = 1
"""The higher levels take longer and save hardly more on results of queries; docs/values.md has the figures."""

MOST_KEPT: Final = 7 / 8
"""What is left of a payload that is worth compressing, at most: each reader pays for the way back."""


class Packed(NamedTuple):
    """A payload as it is stored."""

    content: bytes
    is_compressed: bool = False


class TooLarge(Exception):
    """A frame's content has ``size`` bytes, more than is allowed. Nothing of it was expanded."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class BrokenFrame(ValueError):
    """What should be a frame is none, is cut or changed, or does not say how large its content is."""


def pack(payload: bytes, min_bytes: int) -> Packed:
    """Compress a payload of ``min_bytes`` or more (0: none), unless that saves less than an eighth of it."""
    if not 0 < min_bytes <= len(payload):
        return Packed(payload)
    frame = _codec().compress(payload)
    return Packed(frame, is_compressed=True) if len(frame) <= len(payload) * MOST_KEPT else Packed(payload)


def expand(frame: bytes, max_bytes: int) -> bytes:
    """Return the content of a frame. No more than ``max_bytes`` is ever allocated, whatever the frame says or hides.

    Raises:
        TooLarge: the frame says that its content is larger than ``max_bytes``.
        BrokenFrame: see there.
    """
    codec = _codec()
    try:
        size = codec.content_size(frame)
        if size > max_bytes:
            raise TooLarge(size)
        # Allocates what the frame says, no more, and refuses one that says nothing.
        return codec.decompress(frame, allow_extra_data=False)
    except codec.error as error:
        raise BrokenFrame(str(error)) from error


class _Codec:
    def __init__(self) -> None:
        import zstandard

        self.error = zstandard.ZstdError
        self.content_size = zstandard.frame_content_size
        self.compress = zstandard.ZstdCompressor(level=LEVEL).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


class _Own(threading.local):
    # One for each thread: a codec that two threads use at a time breaks the process's memory.
    codec: _Codec | None = None


_own = _Own()


def _codec() -> _Codec:
    codec = _own.codec
    if codec is None:
        codec = _own.codec = _Codec()
    return codec
