from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypedDict, TypeVar, Union
from uuid import UUID

import msgspec
import pydantic
import pytest

from api_client.errors import DecodeError, InvalidQuery
from api_client.protocol import messages, payload
from api_client.protocol.keys import make_key
from api_client.protocol.messages import MalformedMessage, RefreshItem, RefreshReason
from tests.support.payloads import read_payload


@dataclass
class Person:
    name: str
    age: int = 0


class Struct(msgspec.Struct):
    name: str


class Typed(TypedDict):
    name: str


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: list[str]


@dataclass
class Household:
    members: list[Person | None]
    pets: list[Cat | Dog] = field(default_factory=list)
    by_room: dict[str, list[list[Person]]] = field(default_factory=dict)


class Pair(NamedTuple):
    first: int
    second: str | None = None


class Model(pydantic.BaseModel):
    name: str
    born: date | None = None


T = TypeVar("T")


class ModelPage(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Unknown(Generic[T]):
    pass


@dataclass
class Page(Generic[T]):
    items: list[T]


ANN = {"name": "Ann"}


@pytest.mark.parametrize(
    "value", [None, True, -(2**63), 2**64 - 1, 1.5, float("inf"), "é", b"\x00", [[]], {1: {"a": []}}]
)
def test_a_value_survives_encoding_and_decoding(value: object) -> None:
    decoded = read_payload(payload.encode(value), query="q", max_bytes=100)
    assert (type(decoded), decoded) == (type(value), value)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (Person, ANN, Person("Ann")),
        (Struct, ANN, Struct("Ann")),
        (Typed, ANN, ANN),
        (list[Person], [ANN], [Person("Ann")]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (int | None, None, None),
        (float, 1, 1.0),
        (Any, ANN, ANN),
        (Optional[Person], None, None),  # noqa: UP045 - as many spell it
        (Union[Person, None], ANN, Person("Ann")),  # noqa: UP007
        (Person | int | str, ANN, Person("Ann")),
        (Person | int | str, 5, 5),
        (Cat | Dog, {"type": "Dog", "tricks": ["roll"]}, Dog(["roll"])),
        (list[list[Person]], [[ANN], []], [[Person("Ann")], []]),
        (
            Household,
            {"members": [ANN, None], "pets": [{"type": "Cat", "lives": 9}]},
            Household([Person("Ann"), None], [Cat(9)]),
        ),
        (Household, {"members": [], "by_room": {"hall": [[ANN]]}}, Household([], [], {"hall": [[Person("Ann")]]})),
        (Pair, [1], Pair(1)),
        (Page[Person], {"items": [ANN]}, Page([Person("Ann")])),
        (set[str], ["a", "b"], {"a", "b"}),
        (Person, {**ANN, "of a later release": 1}, Person("Ann")),
        (Literal["a", "b"], "a", "a"),
        (Annotated[int, msgspec.Meta(ge=0)], 5, 5),
        (Model, {**ANN, "born": "2000-01-02", "later": 1}, Model(name="Ann", born=date(2000, 1, 2))),
        (list[Model] | None, [ANN], [Model(name="Ann")]),
        (Page[Model], {"items": [ANN]}, Page([Model(name="Ann")])),
        (ModelPage[Model], {"items": [ANN]}, ModelPage[Model](items=[Model(name="Ann")])),
    ],
)
def test_a_value_is_decoded_into_the_requested_type(type_: Any, value: object, expected: object) -> None:
    decoded = read_payload(payload.encode(value), type_, query="q", max_bytes=100)
    assert (type(decoded), decoded) == (type(expected), expected)


@pytest.mark.parametrize(
    ("type_", "value", "named"),
    [
        (Person, {"name": 5}, "$.name"),
        (Person, {}, "name"),
        (list[Person], [ANN, {"name": "B", "age": "x"}], "$[1].age"),
        (int, "5", "int"),
        (int, None, "int"),
        (str, b"5", "str"),
        (Household, {"members": [ANN, {"name": None}]}, "`$.members[1].name`"),
        (Household, {"members": [], "pets": [{"type": "Cat", "lives": "9"}]}, "`$.pets[0].lives`"),
        (Household, {"members": [], "pets": [{"type": "Cow"}]}, "`$.pets[0].type`"),
        (Household, {"members": [], "by_room": {"hall": [[{}]]}}, "`name` - at `$.by_room[...][0][0]`"),
        (Typed, {"name": 5}, "does not fit Typed: Expected `str`, got `int` - at `$.name`"),
        (list[Struct], [{"name": 5}], "Struct]: Expected `str`, got `int` - at `$[0].name`"),
        (Page[Person], {"items": [5]}, "Person]: Expected `object`, got `int` - at `$.items[0]`"),
        (Pair, [1, 2], "`$[1]`"),
        (int | None, "x", "does not fit int | None: Expected `int | null`, got `str`"),
        (Literal["a"], "b", "Invalid enum value 'b'"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, ">= 0"),
        (datetime, "yesterday", "datetime"),
        (UUID, "42", "UUID"),
        (Model, {"name": 5}, "does not fit Model: name: Input should be a valid string"),
        (list[Model], [ANN, {"born": "x"}], "name: Field required; born: Input should be a valid date"),
        (list[Model], [ANN, {}], " - at `$[1]`"),
        (Model, [], "does not fit Model: Model: Input should be a valid dictionary"),
        (Unknown[int], {}, "Expected"),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_a_decode_error_with_query_and_field(
    type_: Any, value: object, named: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        read_payload(payload.encode(value), type_, query="friends_of", max_bytes=100)
    assert (caught.value.query, "'friends_of'" in str(caught.value), named in str(caught.value)) == (
        "friends_of", True, True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "broken", [b"", b"\xc1", b"\x92\x01", payload.encode(5) * 2, b"\x91" * 5_000, b"\xa5\xff\xff\xff\xff\xff"]
)
def test_a_broken_payload_is_a_decode_error(broken: bytes) -> None:
    with pytest.raises(DecodeError, match=r"is broken|does not fit"):
        read_payload(broken, query="q", max_bytes=10_000)


@pytest.mark.parametrize("type_", [[int], 5, Person | Household, Struct | Person])
def test_an_undecodable_type_is_a_type_error(type_: Any) -> None:
    with pytest.raises(TypeError):
        read_payload(payload.encode(1), type_, query="q", max_bytes=100)


def test_a_payload_may_start_at_an_offset() -> None:
    raw = b"\xc1" * 100 + payload.encode([ANN])
    assert read_payload(raw, offset=100, query="q", max_bytes=11) == [ANN]
    assert read_payload(raw, list[Person], offset=100, query="q", max_bytes=11) == [Person("Ann")]
    with pytest.raises(DecodeError, match="has 11 bytes; CACHE_MAX_VALUE_BYTES allows 10"):
        read_payload(raw, offset=100, query="q", max_bytes=10)


FULL = RefreshItem(
    query="q", version=2, params='{"a":[1,null,{"b":"é"}]}', claim_number=2**53 - 1, reason=RefreshReason.STALE,
    ticket="t", attempt=3, cache_attempt=1, passes=2,
)  # fmt: skip


def test_a_message_has_the_shape_promised_from_the_first_release_on() -> None:
    assert messages.encode([FULL]) == {
        "v": 1,
        "items": [
            {
                "query": "q", "version": 2, "params": '{"a":[1,null,{"b":"é"}]}', "claim_number": 2**53 - 1,
                "reason": "stale", "ticket": "t", "attempt": 3, "cache_attempt": 1,
                "passes": 2,
            }
        ],
    }  # fmt: skip


def test_unknown_keys_of_a_message_are_ignored_and_missing_ones_have_defaults() -> None:
    message = {"v": 1, "items": [{"query": "q", "of_a_later_release": 1}], "more": 2}
    assert messages.decode(message) == [RefreshItem(query="q")]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (None, "expected"), (5, "expected"), ("x", "expected"), ([], "expected"), ({}, "expected"),
        ({"v": 1}, "expected"), ({"items": []}, "version None"), ({"v": 2, "items": []}, "version 2"),
        ({"v": "1", "items": []}, "version '1'"), ({"v": 1, "items": None}, "array"), ({"v": 1, "items": {}}, "array"),
        ({"v": 1, "items": [5]}, r"\$\[0\]"), ({"v": 1, "items": [{}]}, "query"),
        ({"v": 1, "items": [{"query": 5}]}, r"\$\[0\]\.query"),
        ({"v": 1, "items": [{"query": "q", "params": []}]}, "params"),
        ({"v": 1, "items": [{"query": "q", "params": {}}]}, "params"),
        ({"v": 1, "items": [{"query": "q", "reason": 5}]}, "reason"),
        ({"v": 1, "items": [{"query": "q", "version": "1"}]}, "version"),
        ({"v": 1, "items": [{"query": "q", "ticket": None}]}, "ticket"),
        ({"v": 1, "items": [{"query": "q", "claim_number": 1.5}]}, "claim_number"),
        ({"v": 1, "items": [{"query": "q", "claim_number": -1}]}, "claim_number"),
        ({"v": 1, "items": [{"query": "q", "claim_number": 2**53}]}, "claim_number"),
        ({"v": 1, "items": [{"query": "q", "claim_number": 10**400}]}, "claim_number"),
        ({"v": 1, "items": [{"query": "q", "attempt": 0}]}, "attempt"),
        ({"v": 1, "items": [{"query": "q", "attempt": -(10**9)}]}, "attempt"),
        ({"v": 1, "items": [{"query": "q", "cache_attempt": -1}]}, "cache_attempt"),
        ({"v": 1, "items": [{"query": 5}, {}]}, r"\$\[0\]\.query"),
    ],
)  # fmt: skip
def test_a_malformed_message_is_refused_with_the_place_of_the_fault(message: object, says: str) -> None:
    with pytest.raises(MalformedMessage, match=says):
        messages.decode(message)


@pytest.mark.parametrize(
    ("bad", "where"), [({"query": None, "params": "secret"}, "$[1].query"), ("secret", "$[1]"), ({}, "$[1]")]
)
def test_a_malformed_item_is_skipped_and_logged_and_the_others_are_decoded(
    bad: object, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    message = {"v": 1, "items": [{"query": "a"}, bad, {"query": "b"}]}
    assert [item.query for item in messages.decode(message)] == ["a", "b"]
    assert where in caplog.text
    assert "secret" not in caplog.text


def test_an_unknown_reason_of_a_later_release_is_decoded_as_manual() -> None:
    assert messages.decode({"v": 1, "items": [{"query": "q", "reason": "whim"}]}) == [
        RefreshItem(query="q", reason=RefreshReason.MANUAL)
    ]


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (RefreshItem(query="q", params="secret"), "q v1 ? manual"),
        (RefreshItem(query="x" * 5_000), "? manual"),
        (RefreshItem(query="q", version=10**4_000), "? manual"),
    ],
    ids=["params", "name", "version"],
)
def test_the_arguments_shown_to_monitors_mark_an_item_without_a_key(item: RefreshItem, shown: str) -> None:
    assert messages.shown_args([item], "ns") == shown


def test_the_arguments_shown_to_monitors_contain_no_params() -> None:
    key = make_key("ns", "friends_of", {"name": "someone"}, 2)
    item = messages.item_for(key, 7, RefreshReason.EARLY)
    assert messages.shown_args([item], "ns") == f"friends_of v2 {key.short} early"
    assert (item.params, item.decoded_params) == ('{"name":"someone"}', {"name": "someone"})
    assert (item.claim_number, item.key("ns")) == (7, key)


def test_params_of_a_message_are_canonicalised_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    key = make_key("ns", "friends_of", {"name": "someone"}, 2)
    item = messages.item_for(key, 7, RefreshReason.EARLY)
    received = messages.decode(messages.encode([item]))[0]
    assert (received, received.key("ns")) == (item, key)
    monkeypatch.setattr(messages, "make_key", None)
    assert item.key("ns") is key
    assert messages.shown_args([item, received], "ns") == "×2: " + ", ".join([f"friends_of v2 {key.short} early"] * 2)
    assert messages.shown_args([item] * 64, "ns") == f"×64: {', '.join([f'friends_of v2 {key.short} early'] * 3)}, …"
    assert "ns" not in messages.encode([item])["items"][0]


def test_an_item_with_an_invalid_query_name_raises_when_its_key_is_built() -> None:
    with pytest.raises(InvalidQuery):
        RefreshItem(query="a b").key("ns")
