"""The payload: MessagePack, which keeps values that JSON loses (bytes, NaN, keys that are not text)."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple, get_origin

import msgspec

from api_client.errors import DecodeError, InvalidQuery
from api_client.protocol import arrays
from api_client.protocol.entry import Header

LEVEL: Final = 1
"""Higher levels take longer and hardly save more on query results; docs/reference/values.md has the figures."""

MAX_KEPT: Final = 7 / 8
"""Largest compressed size, as a share of the payload's, that is worth the cost of expanding it at each read."""

_encoder = msgspec.msgpack.Encoder()
_decode_any = msgspec.msgpack.Decoder(ext_hook=arrays.as_list).decode
_ARRAY_FOUND: Final = re.compile(r"got `ext`( - at |$)")
"""The end of a decoder's error about an array in place of a list."""


class Packed(NamedTuple):
    """A payload as stored; with ``has_arrays`` it needs a reader that knows `arrays`."""

    content: bytes
    is_compressed: bool = False
    has_arrays: bool = False


def encode(value: Any) -> bytes:
    """Encode a value: None, bool, int of 64 bits, float, str, bytes, datetime, list, tuple, dict and the like.

    Raises:
        TypeError, OverflowError, RecursionError, ValueError: the value can't be encoded.
    """
    return _encoder.encode(value)


def content_of(raw: bytes, header: Header, query: str, max_bytes: int) -> bytes:
    """Return the uncompressed payload of an entry.

    Args:
        raw: the entry's bytes, which begin with ``header``.
        query: the query's name, for errors.
        max_bytes: bounds the payload, both compressed and uncompressed.

    Raises:
        DecodeError: the payload is larger than ``max_bytes``, or a broken frame.
    """
    content = raw[header.length :]  # runs at each hit, and is cheaper than a view
    if len(content) > max_bytes:
        raise _too_large(query, len(content), max_bytes)
    if not header.is_compressed:
        return content
    return _expanded(content, query, max_bytes)


def decode(content: bytes, type_: Any, query: str) -> Any:
    """Decode a payload (see `content_of`) into a value of ``type_``.

    Args:
        type_: a dataclass, msgspec.Struct, TypedDict, pydantic model, union, list[…], …;
            docs/reference/values.md lists what becomes what.

    Raises:
        DecodeError: the payload does not fit the type, or is broken.
        TypeError: ``type_`` is not a decodable type.
    """
    try:
        return _decode_any(content) if type_ is Any else _decode_as(content, type_)
    except msgspec.ValidationError as error:
        raise DecodeError(f"the value of {query!r} does not fit {_name(type_)}: {error}", query=query) from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _broken(query, error) from error


def _decode_as(content: bytes, type_: Any) -> Any:
    try:
        return _decoder(type_).decode(content)
    except msgspec.ValidationError as error:
        if _ARRAY_FOUND.search(str(error)) is None:
            raise
    # A list's decoder accepts no extension, but a value decoded without a type can be converted to any.
    found = msgspec.msgpack.decode(content, ext_hook=arrays.as_numbers)
    return msgspec.convert(found, type_, dec_hook=_as_custom)


def check_type(type_: object, option: str, query: str) -> None:
    """Check that values can be decoded into the type of an option.

    Raises:
        InvalidQuery: they can't.
    """
    # A forward reference is resolved at the first read.
    with suppress(NameError):
        try:
            _decoder(type_)
        except TypeError as error:
            raise InvalidQuery(f"{option} for {query!r}: not a decodable type: {error}", query=query) from error


def _broken(query: str, error: Exception) -> DecodeError:
    return DecodeError(f"the payload of {query!r} is broken: {error}", query=query)


def _too_large(query: str, size: int, max_bytes: int) -> DecodeError:
    return DecodeError(
        f"the value of {query!r} has {size} bytes; CACHE_MAX_VALUE_BYTES allows {max_bytes}", query=query
    )


@lru_cache(maxsize=256)
def _cached_decoder(type_: Any) -> msgspec.msgpack.Decoder[Any]:
    ext_hook = arrays.PackedArray.decode if arrays.is_array_type(get_origin(type_) or type_) else arrays.as_numbers
    return msgspec.msgpack.Decoder(type_, dec_hook=_as_custom, ext_hook=ext_hook)


def _decoder(type_: Any) -> msgspec.msgpack.Decoder[Any]:
    try:
        return _cached_decoder(type_)
    except TypeError:
        # An unhashable annotation can't be cached; msgspec raises if it is not a type.
        return _cached_decoder.__wrapped__(type_)


def _as_custom(type_: Any, value: Any) -> Any:
    """Convert a value to a class that msgspec does not know: an array or a model.

    Raises:
        ValueError, TypeError: the value does not fit.
    """
    own = get_origin(type_) or type_
    return arrays.as_array(own, value) if arrays.is_array_type(own) else _as_model(type_, value)


def _as_model(type_: Any, value: Any) -> Any:
    """Validate a value as a pydantic model that msgspec has met in a type, or explain why another class is wrong.

    Raises:
        ValueError: the value does not fit; the message omits the value, which may be personal.
    """
    pydantic: Any = sys.modules.get("pydantic")  # if pydantic is not imported, the class is not a model
    model: Any = type_
    if pydantic is None or not isinstance(type_, type) or not issubclass(type_, pydantic.BaseModel):
        return value
    try:
        return model.model_validate(value)
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False, include_input=False, include_context=False)
        faults = (": ".join((".".join(map(str, one["loc"])) or model.__name__, one["msg"])) for one in details)
        raise ValueError("; ".join(faults)) from None


def _name(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) else str(type_)


def pack(payload: Packed, min_bytes: int) -> Packed:
    """Compress a payload of at least ``min_bytes`` (0: never), unless that saves less than an eighth of it."""
    content = payload.content
    if not 0 < min_bytes <= len(content):
        return payload
    frame = thread_codec().compress(content)
    return payload._replace(content=frame, is_compressed=True) if len(frame) <= len(content) * MAX_KEPT else payload


def _expanded(frame: bytes, query: str, max_bytes: int) -> bytes:
    """Expand a frame. At most ``max_bytes`` are allocated, whatever size the frame declares."""
    codec = thread_codec()
    try:
        size = codec.content_size(frame)
        if size > max_bytes:
            raise _too_large(query, size, max_bytes)
        # Allocates only the declared size, and refuses a frame without one.
        return codec.decompress(frame, allow_extra_data=False)
    except codec.error as error:
        raise _broken(query, error) from error


class _Codec:
    def __init__(self) -> None:
        import zstandard

        self.error: type[Exception] = zstandard.ZstdError
        self.content_size: Callable[[bytes], int] = zstandard.frame_content_size
        self.compress: Callable[[bytes], bytes] = zstandard.ZstdCompressor(level=LEVEL).compress
        self.decompress: Callable[..., bytes] = zstandard.ZstdDecompressor().decompress


class _Own(threading.local):
    # One per thread, because two threads that use a codec at the same time corrupt memory.
    codec: _Codec | None = None


_own = _Own()


def thread_codec() -> _Codec:
    """Return this thread's codec."""
    codec = _own.codec
    if codec is None:
        codec = _own.codec = _Codec()
    return codec
