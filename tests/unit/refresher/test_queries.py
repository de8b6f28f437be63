"""The registry: what @query accepts, and its errors for anything else."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from api_client.errors import ConfigurationError
from api_client.protocol.budget import Budget
from refresher.ops.startup_checks import params_with_defaults
from refresher.queries import Query, Registry, query, registry
from refresher.query_modules import import_queries


def loader(tx: object, person_id: int, *, limit: int = 10) -> list[int]:
    return [person_id, limit]


def batch_loader(tx: object, calls: list[dict[str, int]]) -> list[int]:
    return [call["person_id"] for call in calls]


def another(tx: object) -> None:
    return None


def registered(**options: Any) -> Query:
    into = Registry()
    load = loader if options.get("batch") is None else batch_loader
    returned = query(options.pop("name", "q"), **({"ttl": 60, "grace": 30} | options), into=into)(load)
    assert returned is load, "the decorated function stays a plain function"
    (found,) = into
    return found


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({}, "grace_seconds", 30.0),
        ({}, "beta", None),
        ({}, "sigma", 1.0),
        ({}, "version", 1),
        ({}, "delta_window", 0),
        ({}, "degree_cypher", None),
        ({"ttl": "5m"}, "ttl_seconds", 300.0),
        ({"ttl": timedelta(hours=1)}, "ttl_seconds", 3600.0),
        ({"ttl": 0}, "ttl_seconds", 0.0),
        ({"grace": 0}, "grace_seconds", 0.0),
        ({}, "budget", Budget()),
        ({"rate": 0.001}, "budget", Budget(rate=0.001)),
        ({"rate": 10_000, "concurrency": 1}, "budget", Budget(10_000, 1)),
        ({"concurrency": 10_000}, "budget", Budget(concurrency=10_000)),
        ({"ttl": 0, "grace": None}, "grace_seconds", 0.0),
        ({"beta": 2}, "beta", 2),
        ({"sigma": 3}, "sigma", 3.0),
        ({"version": 65_535}, "version", 65_535),
        ({"delta": "last"}, "delta_window", 1),
        ({"delta": "mean:1"}, "delta_window", 1),
        ({"delta": "mean:64"}, "delta_window", 64),
        ({"degree": "RETURN 1"}, "degree_cypher", "RETURN 1"),
        ({}, "batch", None),
        ({"batch": 1}, "batch", 1),
        ({"batch": 100}, "batch", 100),
        ({}, "tags", None),
        ({"tags": ["a", "b", "a"]}, "tags", ("a", "b")),
        ({"tags": str}, "tags", str),
        ({"tags": "auto"}, "tags", "auto"),
        ({}, "conditional", False),
        ({}, "version_cypher", None),
        ({"version_cypher": "RETURN 1"}, "version_cypher", "RETURN 1"),
    ],
)
def test_given_options_of_a_query_are_kept_and_the_others_have_their_defaults(
    options: dict[str, Any], field: str, value: object
) -> None:
    assert getattr(registered(**options), field) == value


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "@query"),
    ({"name": "a b"}, "@query"),
    ({"name": 7}, "@query"),
    ({"name": "x" * 101}, "@query"),
    *[({"rate": wrong}, "rate") for wrong in (0, -1, 0.0009, 10_001, True, "10/s", float("nan"), float("inf"))],
    *[({"jitter": wrong}, "jitter") for wrong in (-0.1, 0.6, "60%", "-1%", "10 s", True, "", "%")],
    *[({"concurrency": wrong}, "concurrency") for wrong in (0, -1, 1.5, 2.0, True, "3", 10_001)],
    *[
        ({option: wrong}, option)
        for option in ("ttl", "grace")
        for wrong in (-1, "soon", None, True, float("nan"), "11000d")
    ],
    *[
        ({option: wrong}, option)
        for option in ("beta", "sigma")
        for wrong in (0, -1, 1001, float("nan"), float("inf"), "1", True)
    ],
    *[({"version": wrong}, "version") for wrong in (0, -1, 65_536, 1.0, True, "1", None)],
    *[
        ({"delta": wrong}, "delta")
        for wrong in ("", "mean", "mean:", "mean:0", "mean:65", "mean:-1", "mean:x", "first", None, 3)
    ],
    *[({option: wrong}, option) for option in ("degree", "version_cypher") for wrong in ("", " ", 5, b"RETURN 1")],
    *[({"conditional": wrong}, "conditional") for wrong in (1, None, "yes")],
    *[({"beta_function": wrong}, "beta_function") for wrong in (1.0, "f")],
    *[({"batch": wrong}, "batch") for wrong in (0, -1, 101, 2.0, True, "100")],
    *[({"tags": wrong}, "tags") for wrong in ("person", 1, [1], [""], ["x" * 201], [str(n) for n in range(65)])],
]


@pytest.mark.parametrize(("options", "named"), WRONG, ids=[f"{name}-{n}" for n, (_, name) in enumerate(WRONG)])
def test_a_wrong_argument_is_one_error_that_names_it_and_says_what_is_allowed(
    options: dict[str, Any], named: str
) -> None:
    into = Registry()
    with pytest.raises(ConfigurationError) as caught:
        query(options.pop("name", "friends_of"), **({"ttl": 60, "grace": 30} | options), into=into)
    assert named in caught.value.variable
    assert "expected" in str(caught.value) or "is not a duration" in str(caught.value)
    assert len(into) == 0


@pytest.mark.parametrize(
    "loader",
    [
        lambda tx: [], lambda tx, **params: [], list, lambda tx, person_id: [], lambda calls, tx: [],
        lambda tx, calls, more: [], lambda tx, *, calls: [],
    ],
    ids=["no list", "by name", "a class", "one call's param", "the wrong order", "more", "a keyword"],
)  # fmt: skip
def test_a_loader_of_batches_takes_a_transaction_and_the_calls(loader: Any) -> None:
    into = Registry()
    with pytest.raises(ConfigurationError, match=r"expected a function of two: f\(tx, calls\), with batch, where"):
        query("q", ttl=60, grace=30, batch=10, into=into)(loader)
    assert len(into) == 0


@pytest.mark.parametrize(
    ("loader", "options"),
    [
        (lambda tx, n: n, {}), (lambda tx, previous, /: 1, {}), (lambda previous: 1, {}),
        (lambda tx, calls: [], {"batch": 10}), (lambda tx, previous: [], {"batch": 10}),
    ],
    ids=["without", "by position alone", "no transaction", "a batch without", "no calls"],
)  # fmt: skip
def test_a_conditional_loader_takes_the_previous_value_by_name(loader: Any, options: dict[str, Any]) -> None:
    into = Registry()
    shape = r"f\(tx, calls, previous\)" if options else r"f\(tx, previous, \*\*params\)"
    with pytest.raises(ConfigurationError, match=f"expected .*{shape}"):
        query("q", ttl=60, grace=30, conditional=True, into=into, **options)(loader)
    assert len(into) == 0


@pytest.mark.parametrize(
    "loader", [lambda tx, n, previous: n, lambda tx, previous, n: n, lambda tx, n, *, previous: n, lambda tx, **all_: 1]
)
def test_the_params_of_a_conditional_loader_exclude_the_previous_value(loader: Any) -> None:
    into = Registry()
    query("q", ttl=60, grace=30, conditional=True, into=into)(loader)
    (found,) = into
    found.check_params({"n": 1})
    with pytest.raises(TypeError, match="'previous' is no param"):
        found.check_params({"n": 1, "previous": 2})


def test_all_versions_of_a_query_have_one_budget() -> None:
    into = Registry()

    def define(version: int, **budget: Any) -> None:
        query("q", ttl=60, grace=30, version=version, into=into, **budget)(lambda tx: version)

    define(1, rate=2)
    define(2, rate=2)
    with pytest.raises(ConfigurationError, match=r"version 3.*is not that of version 1; all versions share them"):
        define(3, rate=2, concurrency=1)
    assert [one.version for one in into] == [1, 2]


@pytest.mark.parametrize(
    "tags",
    [lambda **params: [], lambda person_id: [], lambda value, *, person: [], lambda value: []],
    ids=["nothing", "no value", "another name", "no param"],
)
def test_a_function_of_tags_takes_the_value_and_the_params_of_the_loader(tags: Any) -> None:
    into = Registry()
    register = query("friends_of", ttl=60, grace=30, tags=tags, into=into)
    with pytest.raises(ConfigurationError) as caught:
        register(lambda tx, person_id, limit=10: [])
    assert caught.value.variable == "tags of @query('friends_of')"
    assert str(caught.value).endswith("expected a function that may be called as f(value, person_id=…)")
    assert len(into) == 0


@pytest.mark.parametrize(
    ("tags", "loader", "options"),
    [
        (lambda value, person_id: [], lambda tx, person_id, limit=10: [], {}),
        (lambda value, person_id, limit: [], lambda tx, person_id, limit=10: [], {}),
        (lambda value, **params: [], lambda tx, *, person_id: [], {}),
        (lambda value, person_id: [], lambda tx, **params: [], {}),
        (lambda value, person_id: [], lambda tx, person_id, previous: [], {"conditional": True}),
        (lambda value, person_id: [], lambda tx, calls: [], {"batch": 10}),
        (str, lambda tx, person_id: [], {}),
    ],
    ids=["the same", "with a default", "any by name", "any of the loader", "previous", "a batch", "a builtin"],
)
def test_a_function_of_tags_may_take_any_params_or_have_no_signature(
    tags: Any, loader: Any, options: dict[str, Any]
) -> None:
    into = Registry()
    query("friends_of", ttl=60, grace=30, tags=tags, into=into, **options)(loader)
    assert len(into) == 1


def test_a_loader_of_batches_may_have_defaults_and_be_wrapped() -> None:
    def load(tx: Any, calls: list[dict[str, Any]], limit: int = 10) -> list[int]:
        return [limit] * len(calls)

    @functools.wraps(load)
    def traced(*args: Any) -> list[int]:
        return load(*args)

    into = Registry()
    query("plain", ttl=60, grace=30, batch=10, into=into)(load)
    query("wrapped", ttl=60, grace=30, batch=10, into=into)(traced)
    assert [one.name for one in into] == ["plain", "wrapped"]


def test_a_loader_of_batches_takes_any_params() -> None:
    into = Registry()
    query("q", ttl=60, grace=30, batch=10, into=into)(lambda tx, calls: calls)
    (found,) = into
    found.check_params({"whatever": 1})


async def awaited(tx: Any) -> int:
    raise NotImplementedError


async def awaited_rows(tx: Any) -> AsyncIterator[int]:
    yield 1


class AwaitedCall:
    async def __call__(self, tx: Any) -> int:
        return 1


@pytest.mark.parametrize("loader", [awaited, awaited_rows, AwaitedCall()])
def test_an_async_loader_is_refused(loader: Any) -> None:
    into = Registry()
    with pytest.raises(ConfigurationError, match=r"the loader of @query\('q'\)=<.*[Aa]waited.*: expected a plain"):
        query("q", ttl=1, grace=1, into=into)(loader)
    assert len(into) == 0


@pytest.mark.parametrize(
    "wrong",
    [5, "x", None, lambda: 1, lambda *, n: n, dict, max],
    ids=["a number", "a text", "None", "no argument", "keywords only", "a class", "a builtin"],
)
def test_an_object_that_takes_no_transaction_is_refused_as_a_loader(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"the loader of @query\('q'\).*f\(tx, \*\*params\)"):
        query("q", ttl=60, grace=60, into=Registry())(wrong)


def test_a_name_and_version_belong_to_one_function() -> None:
    into = Registry()
    query("q", ttl=1, grace=1, into=into)(loader)
    query("q", ttl=2, grace=1, into=into)(loader)
    query("q", ttl=3, grace=1, version=2, into=into)(another)
    with pytest.raises(ConfigurationError, match=r"taken by .*test_queries\.loader"):
        query("q", ttl=4, grace=1, into=into)(another)
    assert [(q.name, q.version, q.ttl_seconds) for q in into] == [("q", 1, 2.0), ("q", 2, 3.0)]
    assert into.find("q", 3) is None
    assert into.find("r", 1) is None


def test_queries_are_listed_by_name_and_version() -> None:
    into = Registry()
    for name, version in (("b", 1), ("a", 2), ("a", 1)):
        query(name, ttl=1, grace=1, version=version, into=into)(loader)
    assert [(q.name, q.version) for q in into] == [("a", 1), ("a", 2), ("b", 1)]
    assert registry is not into


@pytest.mark.parametrize("params", [{"person_id": 1}, {"person_id": 1, "limit": 2}])
def test_params_that_the_loader_takes_pass(params: dict[str, Any]) -> None:
    registered().check_params(params)


@pytest.mark.parametrize("params", [{}, {"person": 1}, {"person_id": 1, "more": 2}, {"person_id": 1, "tx": 2}])
def test_params_that_the_loader_does_not_take_are_a_type_error(params: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        registered().check_params(params)


def test_a_missing_module_of_queries_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"REFRESHER_QUERIES='no_such_module_at_all'"):
        import_queries(["json", "no_such_module_at_all"])


@pytest.mark.parametrize("module", ["my_queries.py", "./my_queries", "my queries", ".my_queries"])
def test_what_is_no_module_s_name_is_refused_with_what_is_allowed(module: str) -> None:
    with pytest.raises(ConfigurationError, match="expected names of modules as in an import, not files"):
        import_queries([module])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (broken_queries.py, line 1)"),
        (
            "import json\n\njson.loads('{')",
            "enclosed in double quotes: line 1 column 2 (char 1) (broken_queries.py, line 3)",
        ),
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("from json import no_such_name", "ImportError: cannot import name 'no_such_name'"),
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
    ],
)
def test_an_error_inside_a_module_of_queries_is_raised_with_module_and_reason(
    code: str, reason: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_queries.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        import_queries(["broken_queries"])
    assert str(caught.value).startswith("REFRESHER_QUERIES='broken_queries' is not valid: importing it failed with ")
    assert reason in str(caught.value)
    assert caught.value.__cause__ is not None


def test_a_wrong_query_in_a_module_raises_its_own_error(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong_query.py").write_text("from refresher import query; query('q', ttl='soon')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"^ttl of @query\('q'\)="):
        import_queries(["wrong_query"])


def test_the_name_of_a_query_is_its_function_s_unless_it_has_one() -> None:
    into = Registry()
    query(ttl="5m", grace="1h", into=into)(another)
    query("other_name", ttl="5m", grace="1h", into=into)(another)
    assert [one.name for one in into] == ["another", "other_name"]


class Service:
    """An application's own class."""

    def load(self, tx: object) -> int:
        return 1


def by_position(tx: object, person_id: int, /, limit: int = 3) -> int:
    return person_id


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (
            lambda: query(another),
            r"^@query=.*another is not valid: expected a decorator with arguments: @query\(ttl=",
        ),
        (lambda: query("q")(another), r"^ttl of @query\('q'\)=\(none\) .*expected how long a value is fresh"),
        (lambda: query(grace=1)(another), r"^ttl of @query\(\)=\(none\) .*expected how long a value is fresh"),
        (lambda: query(ttl=-1, grace=1)(another), r"^ttl of @query\(\)=-1 .*a hundred years"),
        (lambda: query(ttl=1, grace=1)(lambda tx: 1), r"^@query='<lambda>' .*is not a query's name"),
        (lambda: query("q", ttl=1, grace=1)(Service.load), r"^the loader of @query\('q'\).*a method has no instance"),
        (lambda: query("q", ttl=1, grace=1)(by_position), r"params have names; person_id can be given by position"),
    ],
    ids=["bare", "no ttl", "no name, no ttl", "wrong ttl, no name", "a lambda's name", "a method", "by position alone"],
)
def test_a_wrong_decoration_is_one_error_that_says_what_is_allowed(wrong: Callable[[], object], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        wrong()


def test_the_params_that_a_call_may_leave_out() -> None:
    assert registered().optional_params == ["limit"]
    assert registered(batch=10).optional_params == []
    into = Registry()
    query("conditional", ttl=1, grace=1, conditional=True, into=into)(lambda tx, n, previous=None: n)
    assert [one.optional_params for one in into] == [[]]
    assert params_with_defaults([registered(), registered(name="r")]) == ["q(limit)", "r(limit)"]
