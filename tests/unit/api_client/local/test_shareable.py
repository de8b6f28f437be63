"""Values that several callers may share: a mistake here lets one caller change what another one sees."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from api_client.local.entry import copier_of, is_shareable


class Frozen(msgspec.Struct, frozen=True):
    name: str
    next: Frozen | None = None


class Open(msgspec.Struct):
    name: str


class FrozenWithList(msgspec.Struct, frozen=True):
    names: list[str]


@dataclass(frozen=True)
class FrozenData:
    friends: tuple[Frozen, ...]


@dataclass
class OpenData:
    name: str


class Pair(NamedTuple):
    name: str
    friend: Frozen


class PairWithList(NamedTuple):
    names: list[str]


class Named(TypedDict):
    name: str


class Colour(enum.Enum):
    RED = "red"


NEVER_FLAT = object()


@pytest.mark.parametrize(
    "type_",
    [
        Frozen, FrozenData, Pair, Colour, Literal["a", "b"], dt.datetime, Frozen | None, tuple[Frozen, ...],
        tuple[int, str], tuple[()], frozenset[int], Annotated[int, msgspec.Meta(ge=1)], tuple[tuple[Pair, ...], ...],
    ],
)  # fmt: skip
def test_an_immutable_type_is_shareable(type_: Any) -> None:
    assert is_shareable(NEVER_FLAT, type_)


@pytest.mark.parametrize(
    "type_",
    [
        Any, object, list[int], dict[str, int], set[int], bytearray, Named, Open, OpenData, FrozenWithList,
        PairWithList, tuple[list[int], ...], tuple[Any, ...], Frozen | list[int], Frozen | Open, frozenset[Any],
        Annotated[list[int], msgspec.Meta(max_length=3)],
    ],
)  # fmt: skip
def test_a_mutable_type_is_not_shareable(type_: Any) -> None:
    assert not is_shareable(NEVER_FLAT, type_)


@pytest.mark.parametrize("value", ["text", b"bytes", 1, 1.5, True, None])
def test_a_flat_value_is_shared_whatever_it_was_decoded_as(value: object) -> None:
    assert is_shareable(value, Any)
    assert is_shareable(value, Open | str | bytes | int | float | None)


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, bytearray(b"a"), (1, [2])])
def test_a_nested_value_decoded_as_any_is_not_shareable(value: object) -> None:
    assert not is_shareable(value, Any)


def test_a_type_with_an_unhashable_annotation_is_not_shareable() -> None:
    assert not is_shareable(NEVER_FLAT, Annotated[tuple[int, ...], []])


@pytest.mark.parametrize("value", [{}, [], {"a": 1, "b": None}, [1, "b", None], [{"a": 1}, {}]])
def test_a_copy_of_plain_rows_shares_nothing_that_can_be_changed(value: Any) -> None:
    copy = copier_of(value)
    copied = copy(value)
    assert copied == value
    assert copied is not value
    rows = zip(value, copied, strict=True) if isinstance(value, list) else ()
    assert not any(one is other for one, other in rows if isinstance(one, dict))


@pytest.mark.parametrize("value", [1, "text", None, (1,), [[1]], [{"a": []}], {"a": {}}, [{"a": 1}, 2], [Open("a")]])
def test_a_value_that_is_not_plain_rows_has_no_copier(value: Any) -> None:
    assert copier_of(value) is None
