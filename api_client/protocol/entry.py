"""The entry: the format of one Redis string, for one (query, version, params).

::

    offset  size  field
         0     2  magic C7 58
         2     1  format version
         3     1  must-understand flags (1 = compressed, 2 = arrays): one that a reader does not know makes it a miss
         4     1  other flags (1 = handoff)
         5     1  digits at which the draw is cut (0: none)
         6     2  header length: 88 + the extension fields
         8     8  the first bytes of the key's digest
        16     4  degree of the query's node (0: not known)
        20     8  token            ┐ frozen forever: the scripts of
        28     8  generation       │ two releases read these at once, and
        36     8  soft expiry, µs  │ an invalidation writes the middle two
        44     8  nonce            ┘ in place
        52     8  read started, µs
        60     4  fetched, µs after that
        64     4  ttl, s                 float32, as all that follow but the deviations: float16
        68     6  δ: mean, deviation, s
        74     6  run: mean, deviation, s
        80     4  effective β
        84     4  σ, the query's volatility
        88     –  extension fields: type (1), length (2), bytes; then the payload: MessagePack, or a frame of it

All integers are big-endian; times are those of Redis' clock, in microseconds since 1970.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum, IntFlag
from typing import Any, Final

import msgspec

from api_client.protocol.clock import TOLERANCE_US

MAGIC: Final = b"\xc7X"
FORMAT_VERSION: Final = 1
_FLAGS_OFFSET: Final = 4
TOKEN_OFFSET: Final = 20
DIGEST_BYTES_KEPT: Final = 8
MAX_TOKEN: Final = 2**53
MAX_DEGREE: Final = 2**32 - 1
MAX_FETCH_US: Final = 2**32 - 1  # 71 minutes, longer than any attempt
MAX_DEVIATION_SECONDS: Final = 65_504.0
MAX_HEADER_BYTES: Final = 2**16 - 1

_FIXED: Final = struct.Struct(">4sBBH8sIQQQ8sQIffefeff")  # the first field: magic, version, must-understand flags
FIXED_HEADER_BYTES: Final = _FIXED.size
_U64: Final = struct.Struct(">Q")
_MAX_U64: Final = 2**64 - 1
_TIME_OFFSETS: Final = (36, 52)  # soft expiry, read started
_EXTENSION: Final = struct.Struct(">BH")
_NO_EXTENSIONS: Final[tuple[tuple[str, ...], tuple[float, ...], bytes, bytes]] = ((), (), b"", b"")
_decode_tags: Final = msgspec.msgpack.Decoder(tuple[str, ...]).decode


class MustUnderstand(IntFlag):
    """Flags that a reader has to know; a reader that does not know one treats the entry as a miss."""

    COMPRESSED = 1
    """The payload is a Zstandard frame."""
    ARRAYS = 2
    """The payload contains arrays of numbers (`arrays`)."""


class Flag(IntFlag):
    """Flags that a reader may ignore without serving a wrong value."""

    HANDOFF = 1
    """TTL 0: the value is for the reads that wait for it, and for no later one."""


_STARTS: Final = {
    MAGIC + bytes((FORMAT_VERSION, compressed | arrays)): (compressed > 0, arrays > 0)
    for compressed in (0, MustUnderstand.COMPRESSED)
    for arrays in (0, MustUnderstand.ARRAYS)
}
"""First bytes of an entry, mapped to their flags: compressed or not, with arrays or without."""
_START_OF: Final = {flags: start for start, flags in _STARTS.items()}
_HANDOFF: Final = int(Flag.HANDOFF)


class ExtensionType(IntEnum):
    """Types of extension fields. A reader skips those that it does not know."""

    BOOKMARKS = 1
    DELTA_SAMPLES = 2
    TAGS = 3
    REVALIDATION = 4


class Smoothed(msgspec.Struct, frozen=True, gc=False):
    """A mean and a mean deviation, both in seconds."""

    mean: float
    deviation: float


class Revalidation(msgspec.Struct, frozen=True, array_like=True):
    """Data for a refresh that finds the value unchanged: the source's version, and terms set by the value itself.

    None means no version, or the query's own terms.
    """

    version: Any = None
    ttl_seconds: float | None = None
    grace_seconds: float | None = None


_NO_REVALIDATION: Final = Revalidation()
_decode_revalidation: Final = msgspec.msgpack.Decoder(Revalidation).decode


class Header(msgspec.Struct, frozen=True, gc=False):
    """An entry's header: the decision's inputs and the value's origin. Redis' time in µs, durations in seconds.

    Each hit makes one, so it is a Struct with plain integers: a third of the cost of a NamedTuple with an enum.
    """

    token: int
    generation: int
    soft_expiry_us: int
    nonce: bytes
    read_started_us: int
    fetched_at_us: int
    ttl_seconds: float
    delta: Smoothed
    run: Smoothed
    beta: float
    degree: int
    sigma: float
    draw_digits: int = 0
    flags: int = 0
    bookmarks: tuple[str, ...] = ()
    delta_samples: tuple[float, ...] = ()
    length: int = FIXED_HEADER_BYTES
    is_compressed: bool = False
    encoded_tags: bytes = b""
    encoded_revalidation: bytes = b""
    has_arrays: bool = False

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the value, decoded on access because no read needs them.

        Raises:
            UnreadableEntry: the field is garbage.
        """
        try:
            return _decode_tags(self.encoded_tags) if self.encoded_tags else ()
        except msgspec.MsgspecError as error:
            raise UnreadableEntry("garbage") from error

    @property
    def revalidation(self) -> Revalidation:
        """Data for a refresh that finds the value unchanged, decoded on access like `tags`.

        Raises:
            UnreadableEntry: the field is garbage.
        """
        try:
            return _decode_revalidation(self.encoded_revalidation) if self.encoded_revalidation else _NO_REVALIDATION
        except msgspec.MsgspecError as error:
            raise UnreadableEntry("garbage") from error

    @property
    def is_handoff(self) -> bool:
        """True if only reads that waited for this entry may have its value."""
        return self.flags & _HANDOFF != 0

    def is_stale(self, now_us: int) -> bool:
        """Return whether the value is past its soft expiry at ``now_us`` (Redis' clock), invalidated or of the future.

        An invalidation is judged by the numbers, so that a reader's clock a few milliseconds behind Redis' does not
        make a just invalidated value fresh again.
        """
        return now_us >= self.soft_expiry_us or self.generation > self.token or self.is_ahead(now_us)

    def is_ahead(self, now_us: int) -> bool:
        """Return whether Redis' clock was set back since the value was stored, so that its age is unknown."""
        return now_us < self.fetched_at_us - TOLERANCE_US

    def left_seconds(self, now_us: int) -> float:
        """Return how long the value stays fresh, in seconds; zero or negative if it is stale for any reason."""
        left_seconds = (self.soft_expiry_us - now_us) / 1e6
        return min(left_seconds, 0.0) if self.generation > self.token or self.is_ahead(now_us) else left_seconds


class UnreadableEntry(Exception):
    """The key's value is no entry that this release can read; ``reason`` is a metric label."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def encode(header: Header, digest: bytes, payload: bytes) -> bytes:
    """Return the entry's bytes: the header (its length is computed; ``header.length`` is ignored) and the payload.

    Raises:
        ValueError: the extension fields do not fit in 64 KiB.
    """
    extensions = _encode_extensions(header)
    length = FIXED_HEADER_BYTES + len(extensions)
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"the extension fields take {len(extensions)} bytes; a header has at most {MAX_HEADER_BYTES}")
    fixed = _FIXED.pack(
        _START_OF[header.is_compressed, header.has_arrays],
        header.flags, header.draw_digits, length, digest[:DIGEST_BYTES_KEPT], min(header.degree, MAX_DEGREE),
        header.token, header.generation, header.soft_expiry_us, header.nonce,
        header.read_started_us, min(max(0, header.fetched_at_us - header.read_started_us), MAX_FETCH_US),
        header.ttl_seconds,
        header.delta.mean, min(header.delta.deviation, MAX_DEVIATION_SECONDS),
        header.run.mean, min(header.run.deviation, MAX_DEVIATION_SECONDS),
        header.beta, header.sigma,
    )  # fmt: skip
    return fixed + extensions + payload


def decode_header(raw: bytes, digest: bytes) -> Header:
    """Decode the header of an entry, without touching the payload (``raw[header.length:]``).

    Raises:
        UnreadableEntry: it is garbage, a newer format, another key's entry, or has an unknown must-understand flag.
    """
    if len(raw) < FIXED_HEADER_BYTES:
        raise UnreadableEntry("garbage")
    (
        start, flags, draw_digits, length, kept_digest, degree,
        token, generation, soft_expiry_us, nonce, read_started_us, fetch_us, ttl_seconds,
        delta_mean, delta_deviation, run_mean, run_deviation, beta, sigma,
    ) = _FIXED.unpack_from(raw)  # fmt: skip
    of_payload = _STARTS.get(start)
    if of_payload is None:
        raise _not_understood(start)
    if kept_digest != digest[:DIGEST_BYTES_KEPT]:
        raise UnreadableEntry("digest")
    if not FIXED_HEADER_BYTES <= length <= len(raw) or token >= MAX_TOKEN:
        raise UnreadableEntry("garbage")
    bookmarks, samples, encoded_tags, encoded_revalidation = (
        _NO_EXTENSIONS if length == FIXED_HEADER_BYTES else _decode_extensions(raw, length)
    )
    return Header(
        token, generation, soft_expiry_us, nonce, read_started_us, read_started_us + fetch_us, ttl_seconds,
        Smoothed(delta_mean, delta_deviation), Smoothed(run_mean, run_deviation), beta, degree, sigma,
        draw_digits, flags, bookmarks, samples, length, of_payload[0], encoded_tags, encoded_revalidation,
        of_payload[1],
    )  # fmt: skip


def header_length(raw: bytes) -> int:
    """Return the length of the header that begins with these bytes; 0 if they are no entry's."""
    return int(_FIXED.unpack_from(raw)[3]) if len(raw) >= FIXED_HEADER_BYTES and raw[:2] == MAGIC else 0


def encode_tags(tags: Sequence[str]) -> bytes:
    """Encode tags for a header."""
    return msgspec.msgpack.encode(tags) if tags else b""


def encode_revalidation(revalidation: Revalidation) -> bytes:
    """Encode a revalidation for a header."""
    return b"" if revalidation == _NO_REVALIDATION else msgspec.msgpack.encode(revalidation)


def _not_understood(start: bytes) -> UnreadableEntry:
    if start[:2] != MAGIC:
        return UnreadableEntry("garbage")
    return UnreadableEntry("flags" if start[2] == FORMAT_VERSION else "version")


def is_handoff(raw: bytes) -> bool:
    """Return whether a readable entry is a handoff, which only reads that waited for it may have."""
    return raw[_FLAGS_OFFSET] & _HANDOFF != 0


def frozen_token(raw: bytes | None) -> int:
    """Return the token at its frozen offset, even of an unreadable entry; 0 if there is none.

    The scripts read only the magic and this field, so a claim for an unreadable entry has to name the same token.
    """
    if raw is None or len(raw) < TOKEN_OFFSET + 32 or raw[:2] != MAGIC:
        return 0
    (token,) = _U64.unpack_from(raw, TOKEN_OFFSET)
    return int(token) if token < MAX_TOKEN else 0


def with_times_shifted(raw: bytes, by_us: int) -> bytes:
    """Return an entry with all its times moved ``by_us`` later (earlier if negative)."""
    if len(raw) < FIXED_HEADER_BYTES or raw[:2] != MAGIC:
        return raw
    changed = bytearray(raw)
    for offset in _TIME_OFFSETS:
        (time_us,) = _U64.unpack_from(raw, offset)
        _U64.pack_into(changed, offset, min(max(0, time_us + by_us), _MAX_U64))
    return bytes(changed)


def _encode_extensions(header: Header) -> bytes:
    fields = bytearray()
    if header.bookmarks:
        _append(fields, ExtensionType.BOOKMARKS, "\n".join(header.bookmarks).encode())
    if header.delta_samples:
        _append(fields, ExtensionType.DELTA_SAMPLES, _floats(header.delta_samples))
    if header.encoded_tags:
        _append(fields, ExtensionType.TAGS, header.encoded_tags)
    if header.encoded_revalidation:
        _append(fields, ExtensionType.REVALIDATION, header.encoded_revalidation)
    return bytes(fields)


def _append(fields: bytearray, kind: ExtensionType, content: bytes) -> None:
    if len(content) > MAX_HEADER_BYTES:
        raise ValueError(f"the extension field {kind.name} takes {len(content)} bytes; at most {MAX_HEADER_BYTES} fit")
    fields += _EXTENSION.pack(kind, len(content)) + content


def _decode_extensions(raw: bytes, end: int) -> tuple[tuple[str, ...], tuple[float, ...], bytes, bytes]:
    bookmarks: tuple[str, ...] = ()
    encoded_tags = encoded_revalidation = b""
    samples: tuple[float, ...] = ()
    try:
        for kind, content in _extensions(raw, end):
            if kind == ExtensionType.BOOKMARKS:
                bookmarks = tuple(content.decode().split("\n"))
            elif kind == ExtensionType.DELTA_SAMPLES:
                samples = struct.unpack(f">{len(content) // 4}f", content)
            elif kind == ExtensionType.TAGS:
                encoded_tags = content
            elif kind == ExtensionType.REVALIDATION:
                encoded_revalidation = content
    except (struct.error, UnicodeDecodeError) as error:
        raise UnreadableEntry("garbage") from error
    return bookmarks, samples, encoded_tags, encoded_revalidation


def _extensions(raw: bytes, end: int) -> Iterable[tuple[int, bytes]]:
    position = FIXED_HEADER_BYTES
    while position < end:
        kind, size = _EXTENSION.unpack_from(raw, position)
        position += _EXTENSION.size
        if position + size > end:
            raise UnreadableEntry("garbage")
        yield kind, raw[position : position + size]
        position += size


def _floats(values: Sequence[float]) -> bytes:
    return struct.pack(f">{len(values)}f", *values)
