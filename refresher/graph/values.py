"""Encoding of what the graph returns as a payload: the driver's own types in a plain, documented shape.

======================  =============================================================================
Neo4j                   payload
======================  =============================================================================
Date, Time, DateTime    ISO 8601 text, with nine digits of the second and the offset; no name of a zone
Duration                ISO 8601 text; one sign before it, where all of it goes back in time
Point                   ``{"srid": …, "coordinates": […]}``
Node                    ``{"id": …, "labels": […], "properties": {…}}``
Relationship            ``{"id": …, "type": …, "start": …, "end": …, "properties": {…}}``
Path                    ``{"nodes": […], "relationships": […]}``
Record                  a dict
======================  =============================================================================

docs/reference/values.md has the reader's side.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

import msgspec
from celery.exceptions import SoftTimeLimitExceeded

from refresher.errors import LoadFailed, text_of
from refresher.graph.driver_types import Date, DateTime, Duration, Node, Path, Point, Record, Relationship, Time

_TEXT: Final = (str, bytes, bytearray)
_NUMBER: Final = (int, float)
_MANY: Final = (list, tuple, set, frozenset)
# Looked up by type, which costs a tenth of the checks below.
_AS_THEY_ARE: Final = frozenset({type(None), bool, int, float})


def encode(value: Any, *, query: str, max_bytes: int) -> bytes:
    """Return the payload of a loader's value, not compressed.

    One that is far too large is refused before it is encoded: what that takes is bounded by ``max_bytes``, not by it.

    Raises:
        LoadFailed: ``not_encodable`` or ``too_large``; neither gets better by another attempt.
        MemoryError: there is none left.
        SoftTimeLimitExceeded: the load's time was over.
    """
    normaliser = _Normaliser(max_bytes)
    try:
        encoded = msgspec.msgpack.Encoder(enc_hook=normaliser.encode_hook).encode(normaliser.to_plain(value))
    except _SizeLimitExceeded:
        raise _too_large(query, f"more than {max_bytes}", max_bytes) from None
    except (MemoryError, SoftTimeLimitExceeded):
        raise
    except Exception as error:
        # Of the encoder, or of the value's own methods: __iter__, __len__, a property.
        raise LoadFailed(
            "not_encodable", f"the value of {query!r} can't be encoded: {text_of(error)}", is_transient=False
        ) from error
    if len(encoded) > max_bytes:
        raise _too_large(query, str(len(encoded)), max_bytes)
    return encoded


def rows_of(rows: Iterator[Any], *, query: str, max_bytes: int) -> list[object]:
    """Take the rows of a loader that yields them, and no more of them than may fit into a payload.

    Raises:
        LoadFailed: ``too_large``.
    """
    normaliser = _Normaliser(max_bytes)
    try:
        return [normaliser.row_to_plain(row) for row in rows]
    except _SizeLimitExceeded:
        raise _too_large(query, f"more than {max_bytes}", max_bytes) from None
    finally:
        if isinstance(rows, Generator):
            rows.close()  # in the transaction still


def _too_large(query: str, size: str, max_bytes: int) -> LoadFailed:
    text = f"the value of {query!r} has {size} bytes; CACHE_MAX_VALUE_BYTES allows {max_bytes}"
    return LoadFailed("too_large", text, is_transient=False)


class _SizeLimitExceeded(Exception):
    """The value takes more than is allowed, however it is encoded."""


class _Normaliser:
    """Makes plain values of what a loader returned, for as long as they may fit: each takes a byte at least."""

    def __init__(self, max_bytes: int) -> None:
        self._left_bytes = max_bytes

    def to_plain(self, value: object) -> object:
        """Normalise a value: Record, Duration and Point are tuples, which the encoder would take for arrays."""
        if value is None or isinstance(value, _NUMBER):
            return value
        if isinstance(value, _TEXT):
            self.charge(len(value))
            return value
        if isinstance(value, dict | Record):
            return self._plain_dict(value)
        if isinstance(value, Duration):
            return _duration(value)
        if isinstance(value, Point):
            return {"srid": value.srid, "coordinates": list(value)}
        if isinstance(value, _MANY):
            self.charge(len(value))
            return [self.to_plain(item) for item in value]
        if isinstance(value, msgspec.Struct):
            return self._plain_struct(value)
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
            return self._plain_dict({name: getattr(value, name) for name in names})
        return value

    def row_to_plain(self, value: object) -> object:
        """Normalise one of many values."""
        self.charge(1)
        return self.to_plain(value)

    def encode_hook(self, value: object) -> object:
        """Return the shape of what the encoder does not know."""
        if isinstance(value, Date | Time | DateTime):
            return value.iso_format()
        if isinstance(value, Node):
            properties = self.to_plain(dict(value))
            return {"id": value.element_id, "labels": sorted(value.labels), "properties": properties}
        if isinstance(value, Relationship):
            ends = [node.element_id if node is not None else None for node in value.nodes]
            return {
                "id": value.element_id, "type": value.type, "start": ends[0], "end": ends[1],
                "properties": self.to_plain(dict(value)),
            }  # fmt: skip
        if isinstance(value, Path):
            return {"nodes": list(value.nodes), "relationships": list(value.relationships)}
        raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} has no shape in a payload")

    def _plain_dict(self, value: Mapping[Any, Any]) -> dict[Any, object]:
        # Most values are rows of text and numbers, and most of what a short refresh computes is this loop.
        plain: dict[Any, object] = {}
        for key, item in value.items():
            kind = type(item)
            byte_count = len(key) + 2 if isinstance(key, _TEXT) else 2
            if kind is str:
                byte_count += len(item)
            self._left_bytes -= byte_count
            if self._left_bytes < 0:
                raise _SizeLimitExceeded
            plain[_duration(key) if isinstance(key, Duration) else key] = (
                item if kind is str or kind in _AS_THEY_ARE else self.to_plain(item)
            )
        return plain

    def _plain_struct(self, value: msgspec.Struct) -> msgspec.Struct:
        # A copy that is changed, since the type's own options (tag, rename, array_like) are for the encoder to apply.
        plain = copy.copy(value)
        # What is left out does not count, and which of the defaults will be is not known here.
        normaliser = _Normaliser(sys.maxsize) if value.__struct_config__.omit_defaults else self
        for name in value.__struct_fields__:
            if (item := getattr(value, name)) is not msgspec.UNSET:
                normaliser.charge(1)
                msgspec.structs.force_setattr(plain, name, normaliser.to_plain(item))
        return plain

    def charge(self, byte_count: int) -> None:
        """Count at least ``byte_count`` bytes."""
        self._left_bytes -= byte_count
        if self._left_bytes < 0:
            raise _SizeLimitExceeded


def _duration(value: Duration) -> str:
    # Python's timedelta is read from "-P1DT2S", and not from the driver's "P-1DT-2S".
    if any(value) and max(value) <= 0:
        return f"-{(-value).iso_format()}"
    return value.iso_format()
