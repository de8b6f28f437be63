"""The worker builds the reader's key from the message, whatever types the reader's arguments have."""

from __future__ import annotations

import enum
import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from api_client.protocol import messages
from api_client.protocol.keys import make_key
from api_client.protocol.messages import RefreshReason
from api_client.protocol.params import plain
from tests.property.test_pure_properties import has_twins, json_like, names


class Word(str):
    """A str whose text is not its value."""

    __slots__ = ()

    def __str__(self) -> str:
        return "another"

    def __format__(self, spec: str) -> str:
        return "another"


class Count(int):
    def __int__(self) -> int:
        return 7

    def __str__(self) -> str:
        return "7"


def dressed(value: Any, draw: st.DrawFn) -> Any:
    """Return the same value as another type that represents it."""
    if isinstance(value, dict):
        return {dressed(key, draw): dressed(item, draw) for key, item in value.items()}
    if isinstance(value, list):
        items = [dressed(item, draw) for item in value]
        return draw(st.sampled_from([items, tuple(items)]))
    ways = [value, enum.Enum("Plain", {"X": value})(value)]
    if type(value) is str:
        ways += [np.str_(value), Word(value), enum.Enum("Text", {"X": value}, type=str)(value)]
    elif type(value) is int:
        ways += [np.int64(value), Count(value), enum.IntEnum("Whole", {"X": value})(value)]
    elif type(value) is bool:
        ways.append(np.bool_(value))
    elif type(value) is float:
        ways.append(np.float64(value))
    return draw(st.sampled_from(ways))


# NumPy's text ends at the last character that is not NUL, and an Enum of str needs no name for the empty one.
tame = json_like.filter(lambda value: "\\u0000" not in json.dumps(value))


@st.composite
def calls(draw: st.DrawFn) -> tuple[Any, Any, Any, Any]:
    """A call in plain values, and an equivalent one."""
    query = draw(st.sampled_from(["q", "friends_of", "a.b-c"]))
    version = draw(st.integers(1, 65_535))
    params = draw(st.dictionaries(names, tame, max_size=4).filter(lambda value: not has_twins(value)))
    another = dressed(query, draw), dressed(params, draw), dressed(version, draw)
    return (query, params, version), another


@given(calls())
def test_equivalent_values_make_the_same_key(call: Any) -> None:
    (query, params, version), another = call
    expected = make_key("ns", query, params, version)
    key = make_key("ns", *another)
    assert key == expected
    assert (type(key.query), type(key.version)) == (str, int)


@given(calls())
def test_the_worker_builds_the_reader_s_key_from_the_message(call: Any) -> None:
    _, another = call
    key = make_key("ns", *another)
    sent = json.loads(json.dumps(messages.encode([messages.item_for(key, 1, RefreshReason.MISS)])))
    (item,) = messages.decode(sent)
    assert item.key("ns") == key


@given(
    st.sampled_from([np.float16, np.float32, np.float64]), st.floats(width=16, allow_nan=False, allow_infinity=False)
)
def test_a_numpy_float_is_converted_to_exactly_its_value(kind: Any, value: float) -> None:
    assert plain(kind(value)) == value
    assert type(plain(kind(value))) is float
