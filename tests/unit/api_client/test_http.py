"""Headers of a response: no cache on its way takes the value for fresher than it is."""

from __future__ import annotations

import pytest

from api_client import Entry, EntryState, RefreshState
from api_client.http import cache_headers, is_not_modified


def entry(age: float = 1.2, ttl_remaining: float = 298.8, token: int = 255) -> Entry[str]:
    return Entry(
        value="x", state=EntryState.FRESH, refresh=RefreshState.NONE, age=age, ttl_remaining=ttl_remaining,
        delta=0.1, beta=1.0, degree=0, token=token, generation=0, bookmarks=(),
    )  # fmt: skip


@pytest.mark.promise("Contract and operation", "HTTP caches keep a value no longer than it is fresh here")
def test_a_fresh_value_is_fresh_in_http_caches_no_longer_than_here() -> None:
    assert cache_headers(entry()) == {"Age": "2", "Cache-Control": "private, max-age=300", "ETag": 'W/"ff"'}


def test_public_and_stale_while_revalidate_are_added_on_request() -> None:
    headers = cache_headers(entry(), stale_while_revalidate="1m30s", public=True)
    assert headers["Cache-Control"] == "public, max-age=300, stale-while-revalidate=90"


@pytest.mark.parametrize(("age", "ttl_remaining"), [(400.0, -100.0), (7.0, -0.0), (0.0, -5.0)])
def test_a_stale_or_invalidated_value_is_not_fresh_in_http_caches(age: float, ttl_remaining: float) -> None:
    headers = cache_headers(entry(age, ttl_remaining))
    max_age = int(headers["Cache-Control"].partition("max-age=")[2])
    assert int(headers["Age"]) >= max_age >= 0


@pytest.mark.parametrize("wrong", ["soon", -1, None])
def test_a_wrong_duration_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        cache_headers(entry(), stale_while_revalidate=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("if_none_match", "expected"),
    [
        (None, False),
        ("", False),
        ('W/"ff"', True),
        ('"ff"', True),
        ('"a", W/"ff"', True),
        ("*", True),
        ('W/"fe"', False),
    ],
)
def test_a_client_that_has_this_token_s_value_gets_not_modified(if_none_match: str | None, *, expected: bool) -> None:
    assert is_not_modified(entry(), if_none_match) is expected
