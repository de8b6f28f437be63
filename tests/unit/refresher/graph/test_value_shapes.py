"""Each row of docs/reference/values.md, on values of the driver's own types: what is stored, and what a reader gets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path as FilePath
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import neo4j
import numpy as np
import pydantic
import pytest
import pytz
from neo4j.spatial import CartesianPoint, WGS84Point
from neo4j.time import Date, DateTime, Duration, Time
from neo4j.vector import Vector

from api_client.errors import DecodeError
from refresher.errors import LoadFailed
from refresher.graph import values
from refresher.results import UNCHANGED, Result
from tests.support.driver_values import friends_path
from tests.support.payloads import read_payload

MIB = 1024 * 1024
DOC = (FilePath(__file__).parents[4] / "docs" / "reference" / "values.md").read_text(encoding="utf-8")


class Colour(Enum):
    RED = "red"


class PersonStruct(msgspec.Struct):
    name: str


class PersonDict(TypedDict):
    name: str


def types_of_the_page() -> dict[str, Any]:
    """Return what the page's own Python block declares."""
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", DOC, re.DOTALL) if "class Point" in block)
    declared: dict[str, Any] = {"__name__": __name__}
    exec(compile(code, "docs/reference/values.md", "exec", dont_inherit=True), declared)  # noqa: S102 - the page's example
    return declared


class PersonModel(pydantic.BaseModel):
    name: str


@attrs.define
class PersonAttrs:
    name: str


class PersonTuple(NamedTuple):
    name: str


NAMES: dict[str, Any] = {
    **types_of_the_page(), "time": time, "datetime": datetime, "timedelta": timedelta, "UTC": UTC, "Decimal": Decimal,
    "UUID": UUID, "Colour": Colour, "PersonStruct": PersonStruct, "PersonDict": PersonDict,
    "PersonModel": PersonModel, "PersonAttrs": PersonAttrs, "PersonTuple": PersonTuple,
}  # fmt: skip
Point, Node, Relationship, Path, Person, Knows = (
    NAMES[name] for name in ("Point", "Node", "Relationship", "Path", "Person", "Knows")
)
BERLIN = pytz.timezone("Europe/Berlin")
PLUS_1, PLUS_2 = timezone(timedelta(hours=1)), timezone(timedelta(hours=2))
ROUNDED_US = 123457


A_PATH = friends_path()
ANN, BOB = Node("4:x:1", ["Admin", "Person"], Person("Ann")), Node("4:x:2", [], Person("Bob"))
KNOWS = Relationship("5:x:7", "KNOWS", "4:x:1", "4:x:2", Knows(date(2020, 1, 2)))
# row of the page: (what the loader returns, the values read as its types except str, in the page's order)
ROWS: dict[str, tuple[list[object], list[object]]] = {
    "Date": ([Date(2026, 7, 21)], [date(2026, 7, 21)]),
    "LocalTime": ([Time(9, 27, 1, 5)], [time(9, 27, 1)]),
    "Time": ([Time(9, 27, 1, 123456000, tzinfo=PLUS_1)], [time(9, 27, 1, 123456, tzinfo=PLUS_1)]),
    "LocalDateTime": (
        [DateTime(2026, 7, 21, 9, 27, 1, 123456789)], [datetime(2026, 7, 21, 9, 27, 1, ROUNDED_US)],
    ),
    "DateTime, with an offset or a zone's name": (
        [
            DateTime(2026, 7, 21, 9, 27, 1, 123456000, tzinfo=PLUS_2),
            BERLIN.localize(DateTime(2026, 7, 21, 9, 27, 1, 123456000)),
        ],
        [datetime(2026, 7, 21, 9, 27, 1, 123456, tzinfo=PLUS_2)],
    ),
    "Duration": (
        [Duration(weeks=2, hours=16, minutes=12, seconds=30.5)],
        [timedelta(days=14, hours=16, minutes=12, seconds=30.5)],
    ),
    "Duration, negative in all parts": ([Duration(days=-2, seconds=-3)], [timedelta(days=-2, seconds=-3)]),
    "Duration with months, or with parts of mixed sign": ([Duration(months=14, days=3, seconds=-4)], []),
    "Point, cartesian": ([CartesianPoint((1.5, 2.5))], [Point(7203, [1.5, 2.5])]),
    "Point, cartesian 3D": ([CartesianPoint((1.5, 2.5, 3.5))], [Point(9157, [1.5, 2.5, 3.5])]),
    "Point, WGS 84: longitude, latitude": ([WGS84Point((4.9, 52.4))], [Point(4326, [4.9, 52.4])]),
    "Point, WGS 84 3D: longitude, latitude, height": (
        [WGS84Point((4.9, 52.4, 3.5))], [Point(4979, [4.9, 52.4, 3.5])],
    ),
    "Node": ([A_PATH.start_node], [ANN]),
    "Relationship": ([A_PATH.relationships[0]], [KNOWS]),
    "Path": ([A_PATH], [Path([ANN, BOB], [KNOWS])]),
    "Record": ([neo4j.Record({"name": "Ann"})], [Person("Ann")]),
    "Integer, Float, Boolean, String, null": ([[1, 1.5, True, "Ann", None]], [[1, 1.5, True, "Ann", None]]),
    "ByteArray": ([b"\x00\x01", bytearray(b"\x00\x01")], [b"\x00\x01"]),
    "Vector": ([Vector([1.5, 2.5], "f32"), Vector([1.5, 2.5], "f64")], [[1.5, 2.5]]),
    "an unread Result: as its `data()`; an EagerResult: its records": (
        [neo4j.EagerResult([neo4j.Record({"name": "Ann"})], None, ["name"])],  # type: ignore[arg-type, list-item]
        [[Person("Ann")]],
    ),
    "datetime with a zone": (
        [datetime(2026, 7, 21, 9, 27, 1, 5, tzinfo=PLUS_2)], [datetime(2026, 7, 21, 7, 27, 1, 5, tzinfo=UTC)],
    ),
    "datetime without a zone": ([datetime(2026, 7, 21, 9, 27, 1, 5)], [datetime(2026, 7, 21, 9, 27, 1, 5)]),
    "date": ([date(2026, 7, 21)], [date(2026, 7, 21)]),
    "time": ([time(9, 27, 1)], [time(9, 27, 1)]),
    "timedelta": ([timedelta(days=1, hours=2)], [timedelta(days=1, hours=2)]),
    "Decimal": ([Decimal("1.10")], [Decimal("1.10")]),
    "UUID": ([UUID(int=42)], [UUID(int=42)]),
    "Enum": ([Colour.RED], [Colour.RED]),
    "list, tuple, set": ([[1, 2], (1, 2), {1, 2}, frozenset({1, 2})], [[1, 2], (1, 2), {1, 2}]),
    "dict with keys that are not text": ([{1: "a"}], [{1: "a"}]),
    "dataclass, Struct, TypedDict": (
        [Person("Ann"), PersonStruct("Ann"), PersonDict(name="Ann")],
        [Person("Ann"), PersonStruct("Ann"), {"name": "Ann"}],
    ),
    "pydantic model, attrs class": (
        [PersonModel(name="Ann"), PersonAttrs("Ann")], [PersonModel(name="Ann"), PersonAttrs("Ann")],
    ),
    "NamedTuple": ([PersonTuple("Ann")], [PersonTuple("Ann")]),
    "path of `pathlib`": ([FilePath("/srv/data")], []),
    "NumPy number": ([np.float64(1.5), np.float16(1.5), np.array(1.5)], [1.5]),
    "NumPy array of numbers": ([np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]], "u1")], [[[1, 2], [3, 4]]]),
}  # fmt: skip


def rows() -> dict[str, tuple[object, list[Any]]]:
    """Return the page's two tables of values: the stored form and the types of each row."""
    found = {}
    for heading in ("From the graph", "From Python"):
        section = DOC.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
        lines = [line for line in section.splitlines() if line.startswith("|")][2:]
        for title, stored, types in (re.split(r" (?<!\\)\| ", line.strip("| ")) for line in lines):
            named = [eval(one.replace("\\|", "|"), NAMES) for one in re.findall(r"`(.*?)`", types)]  # noqa: S307
            found[title] = (eval(stored.strip("`"), NAMES), named)  # noqa: S307 - the project's own page
    return found


PAGE = rows()


def stored(value: object) -> bytes:
    return values.encode(value, query="q", max_bytes=MIB).content


def read(raw: bytes, type_: Any = Any) -> Any:
    return read_payload(raw, type_, query="q", max_bytes=MIB)


def test_the_page_has_the_rows_that_are_tested() -> None:
    assert list(PAGE) == list(ROWS)


@pytest.mark.parametrize(("title", "value"), [(title, value) for title, (given, _) in ROWS.items() for value in given])
def test_a_stored_value_has_the_form_that_the_page_documents(title: str, value: object) -> None:
    shown, _ = PAGE[title]
    decoded = read(stored(value))
    assert (type(decoded), decoded) == (type(shown), shown)
    # Also deep in a result.
    assert read(stored([neo4j.Record({"at": [{"deep": value}]})])) == [{"at": [{"deep": shown}]}]


@pytest.mark.parametrize(("title", "value"), [(title, value) for title, (given, _) in ROWS.items() for value in given])
def test_a_value_can_be_read_as_each_type_that_the_page_names(title: str, value: object) -> None:
    shown, types = PAGE[title]
    expected = [*ROWS[title][1], *([shown] if str in types else [])]
    for type_, wanted in zip(types, expected, strict=True):
        decoded = read(stored({"row": [value]}), dict[str, list[type_]])["row"][0]  # type: ignore[valid-type]
        assert (type(decoded), decoded) == (type(wanted), wanted)
        if isinstance(decoded, datetime | time) and isinstance(wanted, datetime | time):
            assert decoded.tzinfo == wanted.tzinfo


@pytest.mark.parametrize(
    ("value", "type_", "message"),
    [
        (Duration(months=1), timedelta, r"[Dd]uration"),
        (Duration(days=1, seconds=-5), timedelta, r"[Dd]uration"),
        (DateTime(9999, 12, 31, 23, 59, 59, 999_999_999), datetime, "datetime"),
    ],
)
def test_a_value_that_the_page_says_can_t_be_read_is_a_decode_error(value: object, type_: Any, message: str) -> None:
    row = msgspec.defstruct("Row", [("took", type_)])
    with pytest.raises(DecodeError, match=rf"the value of 'q' does not fit .*{message}.* at `\$\[0\]\.took`"):
        read(stored([{"took": value}]), list[row])  # type: ignore[valid-type]
    assert read(stored(value), str)


def test_the_last_half_microsecond_of_a_day_is_rounded_up_as_the_page_says() -> None:
    assert read(stored(Time(23, 59, 59, 999_999_500)), time) == time(0, 0)


@dataclass
class Home:
    at: object
    since: object


class HomeStruct(msgspec.Struct, tag="home", rename="upper", frozen=True):
    at: object
    since: object


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (Home(CartesianPoint((1.0, 2.0)), Duration(days=1)), {}),
        (HomeStruct(CartesianPoint((1.0, 2.0)), Duration(days=1)), {"type": "home"}),
        ((HomeStruct(neo4j.Record({"srid": 7203, "coordinates": (1.0, 2.0)}), Duration(days=1)),), {"type": "home"}),
    ],
)
def test_a_driver_s_value_in_a_dataclass_or_struct_has_its_documented_shape(
    value: object, shape: Mapping[str, str]
) -> None:
    decoded = read(stored(value))
    (decoded,) = decoded if isinstance(decoded, list) else [decoded]
    lower = {name.lower(): item for name, item in decoded.items()}
    assert lower == {"at": {"srid": 7203, "coordinates": [1.0, 2.0]}, "since": "P1D", **shape}


def test_encoding_does_not_change_a_struct_with_the_driver_s_types() -> None:
    value = HomeStruct(CartesianPoint((1.0, 2.0)), Duration(days=1))
    stored(value)
    assert value == HomeStruct(CartesianPoint((1.0, 2.0)), Duration(days=1))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Duration(), "PT0S"),
        (Duration(nanoseconds=-5), "-PT0.000000005S"),
        (Duration(months=-1, days=-2), "-P1M2D"),
        (Duration(months=-1, days=2), "P-1M2D"),
    ],
)
def test_a_duration_with_only_negative_parts_begins_with_a_minus_sign(value: Duration, text: str) -> None:
    assert read(stored(value)) == text


def test_a_duration_as_a_key_is_text_and_not_four_numbers() -> None:
    assert read(stored({Duration(days=1): 1, Date(2020, 1, 2): 2})) == {"P1D": 1, "2020-01-02": 2}


class Aliased(pydantic.BaseModel):
    full_name: str = pydantic.Field(alias="fullName")
    at: Any = None
    size: Any = np.float32(0.5)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def initial(self) -> str:
        return self.full_name[0]


class Extensible(pydantic.BaseModel):
    given: int = pydantic.Field(validation_alias=pydantic.AliasChoices("given", "old"))
    secret: str = pydantic.Field("secret-word", exclude=True)
    model_config = pydantic.ConfigDict(extra="allow")


@attrs.frozen(slots=False)
class Nested:
    at: Any
    within: Any = None


def test_a_model_and_an_attrs_class_hold_what_any_value_may() -> None:
    point = CartesianPoint((1.0, 2.0))
    model = Aliased(fullName="Ann", at=[point, Nested(Duration(days=1), {Colour.RED: FilePath("/x")})])
    plain = {
        "fullName": "Ann",
        "at": [{"srid": 7203, "coordinates": [1.0, 2.0]}, {"at": "P1D", "within": {"red": "/x"}}],
        "size": 0.5,
    }
    assert read(stored([model])) == [plain]
    found = read(stored(Aliased(fullName="Ann")), Aliased)
    assert (found.full_name, found.initial) == ("Ann", "A")
    assert read(stored(pydantic.RootModel[list[int]]([1, 2]))) == [1, 2]
    assert read(stored(Extensible.model_validate({"given": 1, "more": point}))) == {
        "given": 1, "more": {"srid": 7203, "coordinates": [1.0, 2.0]}
    }  # fmt: skip


def test_an_enum_of_any_value_is_stored_as_its_value() -> None:
    class Where(Enum):
        HOME = CartesianPoint((1.0, 2.0))
        NUMBER = 7

    assert read(stored({"a": Where.HOME, "b": Where.NUMBER, Where.NUMBER: 1})) == {
        "a": {"srid": 7203, "coordinates": [1.0, 2.0]}, "b": 7, 7: 1,
    }  # fmt: skip


class DataFrame:
    """As pandas' and polars' are called."""


class OwnFrame(DataFrame):
    """A subclass of one."""


@pytest.mark.parametrize(
    ("value", "instead"),
    [
        (DataFrame(), r'its rows: frame\.to_dict\("records"\)'),
        (OwnFrame(), r'its rows: frame\.to_dict\("records"\)'),
        (neo4j.graph.Graph(), r"its nodes and relationships"),
        (np.array([1j]), r"None, numbers, text"),
        (np.datetime64("2026-01-01"), r"a datetime with a zone"),
        (1j, "its two parts"),
        ((row for row in ()), "a list of what it yields"),
        (pydantic.SecretStr("secret-word"), "what may be stored"),
        (len, "what it returns"),
        (object(), "None, numbers, text, bytes, dates"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_without_a_shape_is_refused_with_what_to_return_in_its_place(value: object, instead: str) -> None:
    with pytest.raises(LoadFailed, match=rf"has no shape in a payload: return {instead}") as caught:
        stored({"deep": [value]})
    assert caught.value.kind == "not_encodable"
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize("key", [(1, 2), frozenset({1}), Result(1)], ids=lambda key: type(key).__name__)
def test_a_key_that_is_not_one_value_is_refused_by_name(key: object) -> None:
    with pytest.raises(LoadFailed, match=type(key).__name__) as caught:
        stored([{key: 1}])
    assert caught.value.kind == "not_encodable"


def test_text_and_bytes_of_a_subclass_are_stored_as_what_they_hold() -> None:
    class Markup(str):
        def __str__(self) -> str:
            return "not this"

    class Digest(bytes):
        pass

    value = {"a": Markup("<b>"), "b": Digest(b"\x01"), Markup("k"): 1}
    assert read(stored(value)) == {"a": "<b>", "b": b"\x01", "k": 1}


@pytest.mark.parametrize("own", [Result({"name": "Ann"}), UNCHANGED], ids=lambda own: type(own).__name__)
def test_a_result_within_a_value_is_refused_and_not_stored_as_its_fields(own: object) -> None:
    with pytest.raises(LoadFailed, match=f"a {type(own).__name__} is within another value") as caught:
        stored([own])
    with pytest.raises(LoadFailed, match="is within another value") as of_rows:
        values.rows_of(iter([own]), query="q", max_bytes=1_000)
    assert caught.value.kind == of_rows.value.kind == "not_encodable"
