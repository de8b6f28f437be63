from __future__ import annotations

import enum
import time
from collections import UserDict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Self
from uuid import UUID

import numpy as np
import pytest

from api_client.errors import InvalidQuery
from api_client.protocol.keys import make_key
from api_client.protocol.params import MAX_DEPTH, MAX_PARAMS_BYTES, canonical_params

E_COMPOSED, E_DECOMPOSED = "\u00e9", "e\u0301"
HUGE = pytest.param(10**5000, id="huge")


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Query(str, enum.Enum):  # noqa: UP042 - what it is about
    """Its f-string is its name since Python 3.11; what JSON sends is its value."""

    FRIENDS = "friends_of"


class Plain(enum.Enum):
    FRIENDS = "friends_of"
    TWO = 2
    YES = True
    WORDS = ("a", Query.FRIENDS)
    NOTHING = None
    AGAIN = Query.FRIENDS
    BYTES = b"b"


class Labelled(str, enum.Enum):  # noqa: UP042 - what it is about
    """Equal members with different values."""

    def __new__(cls, label: str, value: str) -> Self:
        member = str.__new__(cls, label)
        member._value_ = value
        return member

    ONE = "same", "one"
    TWO = "same", "two"


def nested(depth: int, inner: object = 1) -> object:
    for _ in range(depth):
        inner = [inner]
    return inner


class WithNanoseconds(datetime):
    """A datetime that is finer than its base, as pandas' Timestamp."""

    nanosecond = 1


def cycle() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    return loop


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (None, "{}"),
        ({}, "{}"),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        ({"a": {"z": 1, "b": [1, 2]}}, '{"a":{"b":[1,2],"z":1}}'),
        ({"a": 1}, '{"a":1}'),
        ({"a": 1.0}, '{"a":1.0}'),
        ({"a": True, "b": None}, '{"a":true,"b":null}'),
        ({"a": (1, 2)}, '{"a":[1,2]}'),
        ({"a": E_DECOMPOSED}, f'{{"a":"{E_COMPOSED}"}}'),
        ({"a": {E_DECOMPOSED: 1}}, f'{{"a":{{"{E_COMPOSED}":1}}}}'),
        ({"a": Colour.RED, "b": Number.ONE}, '{"a":"red","b":1}'),
        ({"a": 2**63 - 1, "b": -(2**63)}, '{"a":9223372036854775807,"b":-9223372036854775808}'),
        ({"a": '"\n{}'}, '{"a":"\\"\\n{}"}'),
        (UserDict({"a": 1}), '{"a":1}'),
        ({"a": Query.FRIENDS, "b": Plain.TWO, "c": Plain.YES}, '{"a":"friends_of","b":2,"c":true}'),
        ({"a": Plain.WORDS, "b": Plain.NOTHING}, '{"a":["a","friends_of"],"b":null}'),
        ({"a": {Query.FRIENDS: 1}, "b": {Plain.AGAIN: 1}}, '{"a":{"friends_of":1},"b":{"friends_of":1}}'),
        ({Query.FRIENDS: 1}, '{"friends_of":1}'),
        ({"a": np.int64(5), "b": np.uint8(5), "c": np.float64(0.5)}, '{"a":5,"b":5,"c":0.5}'),
        ({"a": np.float32(0.1)}, '{"a":0.10000000149011612}'),
        ({"a": np.bool_(True), "b": np.str_("x")}, '{"a":true,"b":"x"}'),
        ({"a": [np.int64(1), {"b": np.bool_(False)}]}, '{"a":[1,{"b":false}]}'),
        ({"a": UUID("12345678-1234-5678-1234-56781234567A")}, '{"a":"12345678-1234-5678-1234-56781234567a"}'),
        ({"a": date(2026, 1, 2)}, '{"a":"2026-01-02"}'),
        ({"a": datetime(2026, 1, 2, 3, tzinfo=UTC)}, '{"a":"2026-01-02T03:00:00+00:00"}'),
        ({"a": datetime(2026, 1, 2, 5, tzinfo=timezone(timedelta(hours=2)))}, '{"a":"2026-01-02T03:00:00+00:00"}'),
        ({"a": datetime(2026, 1, 2, 3, 0, 0, 1, tzinfo=UTC)}, '{"a":"2026-01-02T03:00:00.000001+00:00"}'),
        ({"a": [Decimal("1.50"), Decimal("1.5"), Decimal("1E+2"), Decimal(100)]}, '{"a":["1.5","1.5","100","100"]}'),
        ({"a": [Decimal("-0.0"), Decimal(0), Decimal("-0.10")]}, '{"a":["0","0","-0.1"]}'),
        ({"a": Decimal("0." + 40 * "1")}, f'{{"a":"0.{40 * "1"}"}}'),
    ],
)
def test_params_have_one_canonical_text(params: Any, text: str) -> None:
    assert canonical_params("q", params) == text


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"a": float("nan")}, "a"),
        ({"a": [1, float("inf")]}, "a[1]"),
        ({"a": {"b": -float("inf")}}, "a.b"),
        ({"a": b"bytes"}, "a"),
        ({"a": {"b": {1, 2}}}, "a.b"),
        ({"a": [{"b": object()}]}, "a[0].b"),
        ({"a": {1: 2}}, "a.<an integer of 1 bits>"),
        ({"a": {None: 2}}, "a.<a NoneType>"),
        ({"a": {b"b": 2}}, "a.<a bytes>"),
        ({"a": {("t",): 2}}, "a."),
        ({"a": 2**63}, "a"),
        ({"a": -(2**63) - 1}, "a"),
        ({"a": 10**5000}, "a"),
        ({"a": {10**5000: 1}}, "a."),
        ({"a": ["\ud800"]}, "a[0]"),
        ({"a": {"\udfff": 1}}, "a."),
        ({"a": nested(MAX_DEPTH)}, "a[0]"),
        ({"a": cycle()}, "a.again"),
        ({"a": {E_COMPOSED: 1, E_DECOMPOSED: 2}}, "is there twice"),
        ({"1a": 1}, "'1a'"),
        ({"a-b": 1}, "'a-b'"),
        ({"": 1}, "''"),
        ({E_COMPOSED: 1}, "name"),
        ({"a": Plain.BYTES}, "a is a bytes"),
        ({"a": {Plain.TWO: 1}}, "a.<an integer of 2 bits>"),
        ({"a": {"friends_of": 1, Plain.FRIENDS: 2}}, "is there twice"),
        ({"a": np.array([1])}, "a is a ndarray"),
        ({"a": np.array(1)}, "a is a ndarray"),
        ({"a": np.float64("nan")}, "a is a float"),
        ({"a": np.uint64(2**63)}, "integer of 64 bits"),
        ({"a": np.complex128(1)}, "a is a complex128"),
        ({"a": np.datetime64("2026-01-01T00:00:00.000000001")}, "a is a datetime64"),
        ({"a": np.timedelta64(1, "ns")}, "a is a timedelta64"),
        ({"a": np.bytes_(b"b")}, "a is a bytes_"),
        ({"a": np.longdouble(1)}, "a is a longdouble"),
        ({"a": datetime(2026, 1, 2)}, "a is a datetime: a datetime has a time zone"),
        ({"a": WithNanoseconds(2026, 1, 2, tzinfo=UTC)}, "whole microseconds"),
        ({"a": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))}, "within the years"),
        ({"a": [Decimal("NaN")]}, "a[0] is a Decimal"),
        ({"a": Decimal("-Infinity")}, "a Decimal is finite"),
        ({"a": Decimal("1E+1001")}, "exponent within"),
        ({"a": Decimal("1E-1001")}, "exponent within"),
        ({"a": {date(2026, 1, 2): 1}}, "keys of a dict are text"),
        ({"a": timedelta(1)}, "a is a timedelta"),
        ({1: 1}, "1"),
        ({10**5000: 1}, "name"),
        ({"x" * 101: 1}, "101 characters"),
        ([("a", 1)], "list"),
        ("a=1", "text of 3 characters"),
    ],
)
def test_params_that_are_not_json_like_are_refused_with_the_path_of_the_fault(params: Any, path: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        canonical_params("friends_of", params)
    message = str(caught.value)
    assert path in message
    assert (caught.value.query, "'friends_of'" in message) == ("friends_of", True)
    assert len(message) < 400
    message.encode()


@pytest.mark.parametrize(
    "params",
    [
        "4711-canary", ["4711-canary"], {"a": "4711-canary\ud800"}, {"a": [{"b": "4711-canary\ud800"}]},
        {"a": {"4711-canary": object()}}, {"a": {"4711 canary": {1}}}, {"a": b"4711-canary"}, {"a": 4711 * 10**40},
        {"a": {"4711-canary\ud800": 1}}, {"a": {"4711-canary": "x" * 20_000}}, {"a": {4711: 1}},
    ],
)  # fmt: skip
def test_the_error_of_refused_params_does_not_show_their_values(params: Any) -> None:
    with pytest.raises(InvalidQuery) as caught:
        canonical_params("q", params)
    assert "4711" not in str(caught.value)


def test_params_at_the_size_and_depth_limits_are_accepted() -> None:
    room = MAX_PARAMS_BYTES - len('{"a":""}') - 2
    assert len(canonical_params("q", {"a": "x" * room})) <= MAX_PARAMS_BYTES
    assert canonical_params("q", {"a": nested(MAX_DEPTH - 1)}).count("[") == MAX_DEPTH - 1


@pytest.mark.parametrize(
    "large",
    [
        "x" * 1_000_000,
        "é" * (MAX_PARAMS_BYTES // 2),
        list(range(1_000_000)),
        {"k" * 1_000_000: 1},
        [[0] * 1000] * 1000,
        dict.fromkeys(map(str, range(100_000)), 1),
        "\n" * (MAX_PARAMS_BYTES - 100),
    ],
    ids=["text", "bytes rather than characters", "list", "key", "shared lists", "dict", "escapes"],
)
def test_too_large_params_are_refused_before_they_are_walked(large: object) -> None:
    began = time.process_time()
    with pytest.raises(InvalidQuery, match="larger than 16384 bytes") as caught:
        canonical_params("q", {"a": large})
    assert time.process_time() - began < 0.5
    assert len(str(caught.value)) < 200


def doubled(levels: int) -> object:
    """Return a few lists in memory, with 2**levels leaves when walked."""
    inner: object = 1
    for _ in range(levels):
        inner = [inner, inner]
    return inner


def test_params_that_grow_exponentially_when_walked_are_refused_in_bounded_time() -> None:
    began = time.process_time()
    with pytest.raises(InvalidQuery):
        canonical_params("q", {"a": doubled(MAX_DEPTH - 1)})
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("name", ["q", "_q", "Friends.of-all_2", "x" * 100])
def test_a_query_s_name_may_be_an_identifier_with_dots_and_dashes(name: str) -> None:
    assert make_key("ns", name, None, 1).query == name


@pytest.mark.parametrize(
    "name", ["", "1a", "a b", "a:b", "{a}", "a\n", "ä", "x" * 101, "-a", ".a", None, 5, b"q", HUGE]
)
def test_an_invalid_query_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidQuery, match="is not a query's name"):
        make_key("ns", name, None, 1)


@pytest.mark.parametrize("version", [0, -1, 65_536, True, Plain.YES, np.bool_(True), 1.0, "1", None, HUGE])
def test_an_invalid_version_is_refused(version: Any) -> None:
    with pytest.raises(InvalidQuery, match="expected a whole number, 1 to 65535"):
        make_key("ns", "q", None, version)


def test_the_keys_of_entry_record_and_channel_share_a_slot_and_contain_no_params() -> None:
    key = make_key("ns", "q", {"name": "someone"}, 3)
    tag = f"{{q:3:{key.digest.hex()}}}"
    assert (key.entry, key.record, key.channel) == (f"ns:e1:{tag}", f"ns:l1:{tag}", f"ns:n1:{tag}")
    assert "someone" not in repr((key.entry, key.record, key.channel, key.short))
    assert (len(key.digest), key.short) == (16, key.digest.hex()[:12])
    assert key.params == {"name": "someone"}


def test_name_version_and_params_each_make_another_key() -> None:
    keys = [make_key("ns", q, p, v) for q in ("q", "r") for p in ({}, {"a": 1}, {"a": 1.0}) for v in (1, 2)]
    assert len({key.digest for key in keys}) == len(keys) == 12


@pytest.mark.parametrize("name", [Query.FRIENDS, Plain.FRIENDS, Plain.AGAIN, np.str_("friends_of")], ids=repr)
@pytest.mark.parametrize("version", [2, Plain.TWO, np.int16(2), enum.IntEnum("Version", {"X": 2})(2)], ids=repr)
def test_enum_and_numpy_names_and_versions_are_replaced_by_their_values(name: Any, version: Any) -> None:
    key = make_key("ns", name, {"n": 1}, version)
    assert key == make_key("ns", "friends_of", {"n": 1}, 2)
    assert (type(key.query), type(key.version)) == (str, int)
    assert "friends_of:2:" in key.entry


def test_equal_enum_members_are_distinguished_by_their_values() -> None:
    assert Labelled.ONE == Labelled.TWO
    one, two = (make_key("ns", member, {"p": member}, 1) for member in Labelled)
    assert (one.query, one.params, two.query, two.params) == ("one", {"p": "one"}, "two", {"p": "two"})
