"""Typed handles: a wrong one is an error at import, and a call is the client's own call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, dataclass
from datetime import timedelta
from typing import Any, TypedDict

import pytest

from api_client import CachedQuery, InvalidQuery, QueryCall, cached_query
from api_client import default as default_client


@dataclass
class Friend:
    name: str


class Row(TypedDict):
    name: str


@dataclass
class Chapter:
    """A type that refers to one defined later, as mutually recursive types do."""

    book: Book


chapter = CachedQuery("chapter", returns=Chapter)


@dataclass
class Book:
    chapters: list[Chapter]


class RecordingClient:
    """A client that records what a handle passes on."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def get(self, query: str, params: Any = None, **options: Any) -> str:
        self.calls.append((query, dict(params), options))
        return "value"


@pytest.fixture
def default() -> Iterator[RecordingClient]:
    client = RecordingClient()
    before = default_client.use_as_default(client)  # type: ignore[arg-type]
    yield client
    default_client.use_as_default(before)


@cached_query("declared", version=2)
def declared(person_id: int, limit: int = 10, *, timeout: str = "none") -> list[Friend]:
    raise NotImplementedError


def no_return_type(person_id: int):  # type: ignore[no-untyped-def]
    raise NotImplementedError


def not_resolvable(person_id: int) -> NoSuchName:  # type: ignore[name-defined] # noqa: F821
    raise NotImplementedError


def many_params(*person_ids: int) -> int:
    raise NotImplementedError


def any_params(**params: int) -> int:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CachedQuery("friends of", returns=int), "'friends of' is not a query's name"),
        (lambda: CachedQuery(42, returns=int), "42 is not a query's name"),  # type: ignore[arg-type]
        (lambda: CachedQuery("f", returns=int, version=0), "version 0 of 'f'"),
        (lambda: CachedQuery("f", returns=42), "returns= for 'f': not a decodable type"),  # type: ignore[arg-type]
        (lambda: CachedQuery("f", returns=Friend | Row), "more than one dict-like type"),
        (lambda: CachedQuery("f", returns=int, max_age="soon"), "max_age of 'f': 'soon' is not a duration"),
        (lambda: CachedQuery("f", returns=int, timeout=-1), "timeout of 'f'"),
        (lambda: cached_query(no_return_type), r"write @cached_query\('no_return_type'\)"),  # type: ignore[arg-type]
        (lambda: cached_query("f")(no_return_type), "'f': its signature has no return type"),
        (lambda: cached_query("f")(not_resolvable), "'NoSuchName' is not defined"),
        (lambda: cached_query("f")(many_params), r"\*person_ids: 'int' is not a named parameter"),
        (lambda: cached_query("f")(any_params), r"\*\*params: 'int' is not a named parameter"),
    ],
)
def test_a_wrong_handle_is_an_error_where_it_is_made(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidQuery, match=said):
        make()


@pytest.mark.parametrize("returns", [list[Friend], Friend | None, Row, dict[str, Row], Any])
def test_returns_accepts_every_type_that_type_accepts(returns: Any) -> None:
    assert CachedQuery("f", returns=returns).returns == returns


def test_a_type_may_refer_to_one_defined_after_the_handle(default: RecordingClient) -> None:
    chapter(number=1)
    assert default.calls == [("chapter", {"number": 1}, {"type": Chapter})]


def test_a_call_is_the_clients_call_with_the_type_and_the_options_that_were_given(default: RecordingClient) -> None:
    plain = CachedQuery("f", returns=list[Friend])
    assert plain(person_id=42) == "value"
    assert plain() == "value"
    CachedQuery("f", returns=Row, version=3, max_age="1m", timeout=timedelta(seconds=2))(a=1)
    assert default.calls == [
        ("f", {"person_id": 42}, {"type": list[Friend]}),
        ("f", {}, {"type": list[Friend]}),
        ("f", {"a": 1}, {"type": Row, "version": 3, "max_age": 60.0, "timeout": 2.0}),
    ]


def test_every_name_can_be_a_params_name(default: RecordingClient) -> None:
    names = ("self", "timeout", "default", "type", "params", "query", "args")
    params = dict.fromkeys(names, 1)
    CachedQuery("f", returns=int)(**params)
    assert default.calls == [("f", params, {"type": int})]


def test_options_of_one_read_override_those_of_the_handle(default: RecordingClient) -> None:
    handle = CachedQuery("f", returns=int, max_age="1m", timeout=1)
    handle.of(a=1).get(max_age=None, default=None)
    assert default.calls == [("f", {"a": 1}, {"type": int, "max_age": None, "timeout": 1.0, "default": None})]
    with pytest.raises(InvalidQuery, match="'f': version is the handle's own"):
        handle.of(a=1).get(version=2)  # type: ignore[call-overload]


def test_the_client_is_looked_up_at_the_call_unless_the_handle_is_bound(default: RecordingClient) -> None:
    other, handle = RecordingClient(), CachedQuery("f", returns=int)
    bound = handle.on(other)  # type: ignore[arg-type]
    bound(a=1)
    handle(a=2)
    assert [call[1] for call in other.calls] == [{"a": 1}]
    assert [call[1] for call in default.calls] == [{"a": 2}]
    assert bound != handle


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {"person_id": 42, "limit": 10, "timeout": "none"}),
        ((), {"timeout": "none", "limit": 10, "person_id": 42}),
        ((), {"person_id": 42}),
        ((42,), {}),
        ((42, 10), {"timeout": "none"}),
    ],
)
def test_however_declared_params_are_given_they_are_the_same_params(
    default: RecordingClient, args: tuple[Any, ...], kwargs: Any
) -> None:
    assert declared(*args, **kwargs) == "value"
    assert default.calls == [
        ("declared", {"person_id": 42, "limit": 10, "timeout": "none"}, {"type": list[Friend], "version": 2})
    ]


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "'declared': missing a required argument: 'person_id'"),
        ((42,), {"person": 1}, "'declared': got an unexpected keyword argument 'person'"),
        ((42, 1, "none"), {}, "'declared': too many positional arguments"),
        ((42,), {"person_id": 42}, "'declared': multiple values for argument 'person_id'"),
    ],
)
def test_params_that_were_not_declared_are_refused(
    default: RecordingClient, args: tuple[Any, ...], kwargs: Any, said: str
) -> None:
    for use in (declared, declared.of, declared.aio.of):
        with pytest.raises(InvalidQuery, match=said):
            use(*args, **kwargs)
    assert default.calls == []


def test_a_handle_without_a_signature_refuses_positional_params(default: RecordingClient) -> None:
    with pytest.raises(InvalidQuery, match="'f': params are passed by name"):
        CachedQuery("f", returns=int)(42)
    assert default.calls == []


@pytest.mark.parametrize(
    "calls", [[{"a": 1}], [("f", {"a": 1})], [QueryCall("f", {"a": 1})], [CachedQuery("g", returns=int).of(a=1)]]
)
def test_a_batch_of_a_handle_takes_its_own_calls_alone(calls: Any) -> None:
    with pytest.raises(InvalidQuery, match=r"'f': calls are made by its method of\(\)"):
        CachedQuery("f", returns=int).many(calls)


def test_a_handle_is_an_immutable_value() -> None:
    handle = CachedQuery("f", returns=list[int], version=2)
    assert handle == CachedQuery("f", returns=list[int], version=2)
    assert handle != CachedQuery("f", returns=list[str], version=2)
    assert len({handle, CachedQuery("f", returns=list[int], version=2), declared}) == 2
    assert repr(handle) == "<CachedQuery 'f', version 2>"
    with pytest.raises(FrozenInstanceError):
        handle.version = 3  # type: ignore[misc]


@cached_query("scored")
def scored(i: int, s: float = 1.0, most: float | None = None) -> str:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((7,), {}), ((7, 1), {}), ((), {"i": 7, "s": 1}), ((), {"i": 7, "s": 1.0, "most": None})],
)
def test_a_whole_number_for_a_float_and_a_default_are_the_same_params(
    default: RecordingClient, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    scored(*args, **kwargs)
    ((_, params, _),) = default.calls
    assert params == {"i": 7, "s": 1.0, "most": None}
    assert type(params["s"]) is float


@pytest.mark.parametrize("given", [True, 2**53 + 1, "1"])
def test_what_is_no_number_that_a_float_holds_exactly_stays_as_it_is(default: RecordingClient, given: Any) -> None:
    scored(1, given, 2)
    ((_, params, _),) = default.calls
    assert (params["s"], type(params["s"])) == (given, type(given))
    assert type(params["most"]) is float
