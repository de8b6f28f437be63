"""Vectors and arrays in values: compact as they are stored, lists for whoever asks for no type."""

from __future__ import annotations

import array
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
from neo4j.vector import Vector

from api_client.errors import DecodeError
from api_client.protocol import payload
from api_client.protocol.arrays import ELEMENT_TYPES, EXTENSION_TYPE, PackedArray
from refresher.graph import values

Stdlib: Any = array.array
MIB = 1024 * 1024
DTYPES = ("i8", "i16", "i32", "i64", "f32", "f64")
NUMPY_TYPES = [np.dtype(name) for name in (*ELEMENT_TYPES[1:], ">i2", ">f4", ">f8", "bool")]


def stored(value: Any) -> bytes:
    packed = values.encode(value, query="q", max_bytes=MIB)
    assert packed.has_arrays
    return packed.content


def read(content: bytes, type_: Any = Any) -> Any:
    return payload.decode(content, type_, "q")


def vector_of(dtype: Any, numbers: list[float]) -> Vector:
    return Vector([int(one) if dtype.startswith("i") else float(one) for one in numbers], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_vector_of_each_type_is_read_as_a_list_or_as_the_type_asked_for(dtype: str) -> None:
    numbers = [1, -2, 100]
    content = stored({"v": vector_of(dtype, numbers)})
    assert read(content) == {"v": numbers}
    assert type(read(content)["v"]) is list
    assert read(content, dict[str, list[float]]) == {"v": numbers}
    assert read(content, dict[str, Stdlib])["v"].tolist() == numbers
    again = read(content, dict[str, Vector])["v"]
    assert (again.dtype.value, again.to_native()) == (dtype, numbers)
    found = read(content, dict[str, np.ndarray])["v"]
    assert (found.dtype, found.tolist()) == (np.dtype(f"{dtype[0]}{int(dtype[1:]) // 8}"), numbers)
    found[0] = 7  # the caller's own


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dimensions", [64, 1_536, 4_096])
def test_a_vector_takes_little_more_than_its_raw_bytes(dtype: str, dimensions: int) -> None:
    vector = vector_of(dtype, [1.0] * dimensions)
    assert len(stored(vector)) <= 1.1 * len(vector.raw())


@pytest.mark.parametrize("dtype", NUMPY_TYPES, ids=str)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3)], ids=str)
def test_an_array_of_each_type_and_shape_is_read_again(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    made = np.arange(6).reshape(shape).astype(dtype)
    content = stored([made])
    assert read(content) == [made.tolist()]
    (found,) = read(content, list[np.ndarray])
    assert (found.dtype, found.shape, found.tolist()) == (dtype.newbyteorder("="), shape, made.tolist())


def test_an_array_is_read_as_the_types_of_a_model() -> None:
    @dataclass
    class Row:
        name: str
        embedding: list[float]
        array: np.ndarray[Any, Any]
        typed: np.typing.NDArray[np.float32]
        matrix: list[list[int]]
        anything: Any
        missing: np.ndarray[Any, Any] | None = None

    numbers = np.array([1.5, 2.5], "f4")
    row = {
        "name": "Ann", "embedding": numbers, "array": numbers, "typed": numbers, "matrix": np.eye(2, dtype="i1"),
        "anything": numbers,
    }  # fmt: skip
    found = read(stored([row]), list[Row])[0]
    assert (found.embedding, found.matrix, found.anything) == ([1.5, 2.5], [[1, 0], [0, 1]], [1.5, 2.5])
    assert found.array.dtype == found.typed.dtype == np.dtype("f4")


def test_a_type_that_an_array_does_not_fit_is_a_decode_error_that_says_where() -> None:
    content = stored({"v": np.array([1.5])})
    with pytest.raises(DecodeError, match=r"Expected `int`, got `float` - at `\$\[\.\.\.\]\[0\]`"):
        read(content, dict[str, list[int]])
    with pytest.raises(DecodeError, match="Expected `str`, got `array`"):
        read(content, dict[str, str])
    with pytest.raises(DecodeError, match="does not fit"):
        read(payload.encode({"v": "text"}), dict[str, Stdlib])


@pytest.mark.parametrize(("type_", "kind"), [(array.array, array.array), (np.ndarray, np.ndarray), (Vector, Vector)])
def test_a_plain_list_is_read_as_an_array_too(type_: Any, kind: type) -> None:
    found = read(payload.encode([1.5, 2.5]), type_)
    assert type(found) is kind
    assert list(found.to_native() if isinstance(found, Vector) else found) == [1.5, 2.5]
    assert list(read(payload.encode([1, 2]), array.array)) == [1, 2]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(1.5), 1.5),
        (np.float32(0.5), 0.5),
        (np.int8(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (np.array(2.5), 2.5),
        (np.array([]), []),
        (np.zeros((2, 0)), [[], []]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([1, None, "x"], object), [1, None, "x"]),
        (np.ma.masked_array([1, 2], [False, True]), [1, None]),
        ({np.int64(1): np.int64(2)}, {1: 2}),
    ],
    ids=repr,
)
def test_what_is_no_array_of_numbers_is_stored_as_python_s_own(value: Any, plain: Any) -> None:
    packed = values.encode(value, query="q", max_bytes=MIB)
    assert not packed.has_arrays
    assert read(packed.content) == plain


def test_an_array_counts_against_the_size_limit_before_it_is_encoded() -> None:
    with pytest.raises(Exception, match="more than 1000 bytes; CACHE_MAX_VALUE_BYTES allows 1000"):
        values.encode([np.zeros(100), np.zeros(100)], query="q", max_bytes=1_000)


def test_nan_and_infinity_survive() -> None:
    found = read(stored(np.array([math.nan, math.inf, -math.inf])))
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf]


@pytest.mark.parametrize(
    "broken",
    [
        msgspec.msgpack.Ext(EXTENSION_TYPE, b""),
        msgspec.msgpack.Ext(EXTENSION_TYPE, bytes((0x0F,)) + b"x"),
        msgspec.msgpack.Ext(EXTENSION_TYPE, bytes((0x0A,)) + b"xxx"),
        msgspec.msgpack.Ext(EXTENSION_TYPE, bytes((0x1A, 1, 0, 0))),
        msgspec.msgpack.Ext(EXTENSION_TYPE, bytes((0x1A, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0))),
        msgspec.msgpack.Ext(EXTENSION_TYPE + 1, b"later"),
    ],
    ids=["empty", "of an unknown type", "cut", "cut in its lengths", "shorter than its lengths", "of a later release"],
)
@pytest.mark.parametrize("type_", [Any, list[float], np.ndarray, dict[str, Any]], ids=str)
def test_a_broken_array_is_a_decode_error(broken: msgspec.msgpack.Ext, type_: Any) -> None:
    with pytest.raises(DecodeError):
        read(msgspec.msgpack.encode(broken), type_)


def test_every_element_type_has_its_number_for_good() -> None:
    numbers = {name: PackedArray(name, (1,), bytes(8)).encode().data[0] for name in ELEMENT_TYPES}
    assert numbers == {
        "b1": 0, "i1": 1, "i2": 2, "i4": 3, "i8": 4, "u1": 5, "u2": 6, "u4": 7, "u8": 8, "f2": 9, "f4": 10, "f8": 11
    }  # fmt: skip
    assert bytes(PackedArray("i2", (2, 1), b"\x01\x00\x02\x00").encode().data).hex() == "12020000000100000001000200"


def test_reading_an_array_imports_nothing_that_was_not_asked_for() -> None:
    content = stored(np.array([1.5, 2.5]))
    program = f"""
import json, sys
from typing import Any
from api_client.protocol import payload
found = payload.decode({content!r}, Any, "q"), payload.decode({content!r}, list[float], "q")
print(json.dumps([found, "numpy" in sys.modules, "neo4j" in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == [[[1.5, 2.5], [1.5, 2.5]], False, False]
