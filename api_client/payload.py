"""The payload: MessagePack, which keeps what JSON loses (bytes, NaN, keys that are not text)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from api_client.errors import DecodeError

_encoder = msgspec.msgpack.Encoder()


def encode(value: Any) -> bytes:
    """Return the bytes of a value: None, bool, int of 64 bits, float, str, bytes, datetime, list, tuple, dict and such.

    Raises:
        TypeError, OverflowError, RecursionError, ValueError: it can't be encoded.
    """
    return _encoder.encode(value)


def decode(payload: bytes | memoryview, type_: Any = Any, *, query: str, max_bytes: int) -> Any:
    """Return the value, checked against ``type_`` (a dataclass, msgspec.Struct, TypedDict, list[…], …).

    Raises:
        DecodeError: it does not fit, is broken, or larger than ``max_bytes``.
    """
    if len(payload) > max_bytes:
        raise DecodeError(
            f"the value of {query!r} has {len(payload)} bytes; CACHE_MAX_VALUE_BYTES allows {max_bytes}", query=query
        )
    try:
        return _decoder(type_).decode(payload)
    except msgspec.ValidationError as error:
        raise DecodeError(f"the value of {query!r} does not fit {_name(type_)}: {error}", query=query) from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DecodeError(f"the payload of {query!r} is broken: {error}", query=query) from error


@lru_cache(maxsize=256)
def _cached_decoder(type_: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(type_)


def _decoder(type_: Any) -> msgspec.msgpack.Decoder[Any]:
    try:
        return _cached_decoder(type_)
    except TypeError:
        # An unhashable annotation can't be cached; msgspec says so itself when it is no type at all.
        return msgspec.msgpack.Decoder(type_)


def _name(type_: Any) -> str:
    return getattr(type_, "__name__", None) or str(type_)
