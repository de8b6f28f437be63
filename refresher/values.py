"""How what the graph returns becomes a payload: the driver's own types in a plain, documented shape.

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

docs/values.md says what a reader makes of them.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import msgspec
from neo4j import Record
from neo4j.graph import Node, Path, Relationship
from neo4j.spatial import Point
from neo4j.time import Date, DateTime, Duration, Time

from refresher.errors import LoadFailed


def encode(value: Any, *, query: str, max_bytes: int) -> bytes:
    """Return the payload of a loader's value, not compressed.

    Raises:
        LoadFailed: ``not_encodable`` or ``too_large``; neither gets better by another attempt.
    """
    try:
        encoded = _encoder.encode(_plain(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LoadFailed(
            "not_encodable",
            f"the value of {query!r} can't be encoded: {type(error).__name__}: {error}",
            is_transient=False,
        ) from error
    if len(encoded) > max_bytes:
        raise LoadFailed(
            "too_large",
            f"the value of {query!r} has {len(encoded)} bytes; CACHE_MAX_VALUE_BYTES allows {max_bytes}",
            is_transient=False,
        )
    return encoded


def _plain(value: object) -> object:
    """Walk what the loader returned: Record, Duration and Point are tuples, which the encoder would take for arrays."""
    if isinstance(value, str | bytes | int | float | None):
        return value
    if isinstance(value, Record):
        return {name: _plain(item) for name, item in dict(value).items()}
    if isinstance(value, Duration):
        return _duration(value)
    if isinstance(value, Point):
        return {"srid": value.srid, "coordinates": list(value)}
    if isinstance(value, dict):
        return {_duration(key) if isinstance(key, Duration) else key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return _plain_struct(value)
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return {name: _plain(getattr(value, name)) for name in names if hasattr(value, name)}
    return value


def _plain_struct(value: msgspec.Struct) -> msgspec.Struct:
    # A copy that is changed, since the type's own options (tag, rename, array_like) are for the encoder to apply.
    plain = copy.copy(value)
    for name in value.__struct_fields__:
        msgspec.structs.force_setattr(plain, name, _plain(getattr(value, name)))
    return plain


def _duration(value: Duration) -> str:
    # Python's timedelta is read from "-P1DT2S", and not from the driver's "P-1DT-2S".
    if any(value) and max(value) <= 0:
        return f"-{(-value).iso_format()}"
    return value.iso_format()


def _shape(value: object) -> object:
    if isinstance(value, Date | Time | DateTime):
        return value.iso_format()
    if isinstance(value, Node):
        return {"id": value.element_id, "labels": sorted(value.labels), "properties": _plain(dict(value))}
    if isinstance(value, Relationship):
        ends = [node.element_id if node is not None else None for node in value.nodes]
        return {
            "id": value.element_id, "type": value.type, "start": ends[0], "end": ends[1],
            "properties": _plain(dict(value)),
        }  # fmt: skip
    if isinstance(value, Path):
        return {"nodes": list(value.nodes), "relationships": list(value.relationships)}
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} has no shape in a payload")


_encoder = msgspec.msgpack.Encoder(enc_hook=_shape)
