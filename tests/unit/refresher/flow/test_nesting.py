"""Loads within loads: chains, their bound, and the time that the outer ones leave."""

from __future__ import annotations

import contextvars
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from math import inf

import pytest

from api_client import RefreshFailed
from api_client.protocol.keys import CacheKey, make_key
from refresher.flow import nesting


def key(query: str, **params: int) -> CacheKey:
    return make_key("cache", query, params, 1)


def test_outside_of_loads_anything_may_be_read_for_any_time() -> None:
    nesting.check(key("a"))
    assert nesting.left_seconds() == inf
    assert not nesting.is_in_load()


def test_a_read_that_waits_is_no_load_but_bounds_those_within_it() -> None:
    with nesting.within((), 5.0):
        assert not nesting.is_in_load()
        with nesting.within((key("a"),), 60.0):
            assert nesting.is_in_load()
            assert 4.0 < nesting.left_seconds() <= 5.0
        with nesting.within((key("a"),), 1.0):
            assert nesting.left_seconds() <= 1.0
        assert 4.0 < nesting.left_seconds() <= 5.0


def test_a_chain_that_returns_to_its_beginning_is_shown_from_there() -> None:
    with ExitStack() as loads:
        for query in ("top", "a", "b"):
            loads.enter_context(nesting.within((key(query),), 5.0))
            loads.enter_context(nesting.within((), 5.0))  # the read that waits
        nesting.check(key("a", n=1))
        with pytest.raises(RefreshFailed, match=r"it reads itself: a → b → a$") as caught:
            nesting.check(key("a"))
    assert (caught.value.query, caught.value.kind) == ("a", "cycle")


def test_each_key_of_a_batch_is_part_of_the_chain() -> None:
    with nesting.within((key("a", n=1), key("a", n=2)), 5.0):
        nesting.check(key("a", n=3))
        with pytest.raises(RefreshFailed, match=r"a → a$"):
            nesting.check(key("a", n=2))


def test_the_depth_is_bounded() -> None:
    with ExitStack() as loads:
        for number in range(nesting.MAX_DEPTH):
            nesting.check(key("a", n=number))
            loads.enter_context(nesting.within((key("a", n=number),), 5.0))
        with pytest.raises(RefreshFailed, match=f"at most {nesting.MAX_DEPTH} queries") as caught:
            nesting.check(key("a", n=99))
    assert caught.value.kind == "too_deep"
    nesting.check(key("a", n=99))


def test_a_thread_that_is_given_the_context_is_in_the_load() -> None:
    with nesting.within((key("a"),), 5.0):
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(context.run, nesting.is_in_load).result()
            assert not threads.submit(nesting.is_in_load).result()
