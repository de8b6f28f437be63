"""Script headers as contracts: each is compared with its body, and with the Python that calls it."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from api_client.protocol import lease, live_versions, tags
from api_client.protocol.budget import Budget, Share, Urgency
from api_client.protocol.keys import (
    budget_keys,
    make_key,
    pending_tags_key,
    tag_clock_key,
    tag_index_key,
    tag_member,
    tag_state_key,
    versions_key,
)
from api_client.protocol.lease import Call
from api_client.transport.scripts import SCRIPTS

FOLDER = files("api_client.protocol") / "lua"
KEY = make_key("test", "query", {"n": 1}, 1)
TIMES = {"retention_seconds": 60.0}
SHARE = Share("test", "query", "s", Budget(rate=50, concurrency=3), Budget(rate=40, concurrency=2))
OWN = {"token": 7, "nonce": b"nonce--1"}
CALLS: dict[str, Call[object]] = {
    call.script: call
    for call in (
        lease.acquire(
            KEY,
            nonce=b"n",
            claim_number=1,
            ticket="t",
            lease_seconds=1,
            limit_seconds=1,
            by="p:1",
            in_place=True,
            **TIMES,
        ),
        lease.claim(KEY, claim_id="c", seen_token=1, queue_ttl_seconds=1, by="p:1", **TIMES),
        lease.commit(KEY, **OWN, entry=b"e", hard_ttl_seconds=1, prolongs=b"nonce--0", **TIMES),
        lease.fail(KEY, **OWN, cooling_seconds=1, kind="k", attempts=1, longest_seconds=2, why="w", **TIMES),
        lease.hand_back(KEY, **OWN, queue_ttl_seconds=1, **TIMES),
        lease.invalidate(KEY, hard=True, bookmarks=(), **TIMES),
        lease.read_payload(KEY, nonce=b"n"),
        lease.renew(KEY, **OWN, lease_seconds=1),
        lease.republish(KEY, interval_seconds=1),
        lease.retry(KEY, **OWN, ticket="t", pause_seconds=1, kind="k", attempts=1, **TIMES),
        lease.unclaim(KEY, claim_id="c", **TIMES),
        SHARE.take(Urgency.MISS),
        SHARE.renew(),
        SHARE.release(refund=True),
        live_versions.register("test", "query", 3, lives_seconds=5),
        live_versions.read_versions("test", "query"),
        tags.read_clock("test"),
        tags.tick("test", at_least=5),
        tags.keep("test", b"{}", lease_seconds=1, renew=True),
        tags.mark("test", "tag", number=5, hard=True, bookmarks=()),
        tags.register(KEY, "tag", lives_seconds=5),
        tags.page("test", "tag", number=5, cursor=6, limit=250),
        tags.take("test"),
        tags.finish("test", b"{}"),
        tags.sweep(tag_index_key("test", "tag"), tag_state_key("test", "tag"), limit=250),
    )
}
# The values of each argument of a header in the calls above: a tuple has no names.
SENT = {
    "nonce": {b"n", b"nonce--1"}, "claim_number": {1}, "ticket": {"t"}, "lease_us": {1_000_000},
    "limit_us": {1_000_000}, "retention_ms": {60_000}, "claim_id": {"c"}, "seen_token": {1},
    "queue_ttl_us": {1_000_000}, "force": {0}, "bookmarks": {"", 0}, "bookmarks_limit": {lease.MAX_BOOKMARKS_BYTES},
    "token": {7}, "entry": {b"e"}, "hard_ttl_ms": {1_000}, "channel": {KEY.channel}, "cooling_us": {1_000_000},
    "kind": {"k"}, "attempts": {1}, "hard": {1}, "interval_us": {1_000_000}, "pause_us": {1_000_000},
    "by": {"p:1"}, "forget": {0}, "longest_us": {2_000_000}, "version": {3}, "lives_ms": {5_000},
    "share": {"s"}, "urgency": {"miss"}, "holds_us": {5_000_000}, "all_concurrency": {3}, "all_interval_us": {20_000},
    "all_burst_us": {80_000}, "query_concurrency": {2}, "query_interval_us": {25_000}, "query_burst_us": {75_000},
    "all_refund_us": {20_000}, "query_refund_us": {25_000},
    "at_least": {5}, "invalidation": {b"{}"}, "lease_ms": {1_000, 10_000}, "renew": {1}, "number": {5},
    "prolongs": {b"nonce--0"}, "member": {tag_member(KEY)}, "cursor": {6}, "limit": {250},
    "in_place": {1}, "why": {"w"},
}  # fmt: skip
KEYS_SENT = {
    "entry": KEY.entry, "record": KEY.record, "versions": versions_key("test", "query"), "clock": tag_clock_key("test"),
    "pending": pending_tags_key("test"), "index": tag_index_key("test", "tag"), "state": tag_state_key("test", "tag"),
    **dict(zip(("all_shares", "all_pace"), budget_keys("test"), strict=True)),
    **dict(zip(("query_shares", "query_pace"), budget_keys("test", "query"), strict=True)),
}  # fmt: skip


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.lua").read_text(encoding="utf-8")


def header_of(name: str) -> str:
    lines = text_of(name).splitlines()
    return "\n".join(line for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith("--"))])


def body_of(name: str) -> str:
    return "\n".join(line.partition("--")[0] for line in text_of(name).splitlines())


def declared(name: str, table: str) -> dict[int, str]:
    return {int(n): word for n, word in re.findall(rf"^-- {table}\[(\d+)\]\s+(\w+)", header_of(name), re.MULTILINE)}


def used(name: str, table: str) -> set[int]:
    return {int(n) for n in re.findall(rf"\b{table}\[(\d+)\]", body_of(name))}


def test_each_script_is_called() -> None:
    assert tuple(sorted(CALLS)) == SCRIPTS


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_header_states_purpose_return_values_and_guarantees(name: str) -> None:
    header = header_of(name)
    assert header.startswith(f"-- {name}: ")
    assert re.search(r"^-- returns  \S", header, re.MULTILINE)
    assert re.search(r"^-- keeps    \S", header, re.MULTILINE)


@pytest.mark.parametrize("table", ["KEYS", "ARGV"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_body_uses_every_key_and_argument_of_its_header_and_no_other(name: str, table: str) -> None:
    numbers = declared(name, table)
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert used(name, table) == set(numbers)
    assert not re.search(rf"\b{table}\[[^\d]", body_of(name)), "computed indexes can't be checked"


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_caller_sends_the_keys_and_arguments_of_the_header_in_its_order(name: str) -> None:
    call = CALLS[name]
    assert [KEYS_SENT[word] for word in declared(name, "KEYS").values()] == list(call.keys)
    words = list(declared(name, "ARGV").values())
    assert len(words) == len(call.args)
    assert [word for word, sent in zip(words, call.args, strict=True) if sent not in SENT[word]] == []


@pytest.mark.parametrize("name", [*SCRIPTS, "prelude"])
def test_a_header_states_the_unit_of_every_duration(name: str) -> None:
    wrong = [
        line
        for line in header_of(name).splitlines()
        if (named := re.match(r"-- ARGV\[\d+\]\s+\w+_(us|ms)\s+(\S+)", line))
        and named[2] != {"us": "µs", "ms": "ms"}[named[1]]
    ]
    assert wrong == []


@pytest.mark.parametrize("name", [*SCRIPTS, "prelude"])
def test_no_script_loops_or_scans_keys(name: str) -> None:
    body = body_of(name)
    assert re.findall(r"\b(?:for|while|repeat|goto)\b", body) == []
    assert re.findall(r"'(?:KEYS|SCAN|HSCAN|SSCAN|ZSCAN|EVAL|FLUSHDB|FLUSHALL|RANDOMKEY)'", body.upper()) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_touches_only_keys_that_it_was_given(name: str) -> None:
    body = body_of(name)
    first_arguments = re.findall(r"redis\.p?call\('(\w+)'(?:,\s*([^,)]+))?", body)
    given = {f"KEYS[{place}]" for place in declared(name, "KEYS")}
    # A function of the script's own has keys for its first parameters, by these names.
    are_keys = {"shares", "pace"}
    for function, parameters in re.findall(r"local function (\w+)\(([^)]*)\)", body):
        for called in re.findall(rf"(?<!function )\b{function}\(([^)]*)\)", body):
            named = dict(zip(parameters.split(", "), called.split(", "), strict=False))
            assert {named[key] for key in are_keys & named.keys()} <= given | are_keys
    assert {key for command, key in first_arguments if command != "TIME"} <= given | are_keys
    channels = re.findall(r"\bnotify\(([^,]+),", body_of(name))
    assert channels == [f"ARGV[{place}]" for place, word in declared(name, "ARGV").items() if word == "channel"]


@pytest.mark.parametrize("name", [*SCRIPTS, "prelude"])
def test_numbers_leave_lua_as_text_and_no_caller_s_clock_comes_in(name: str) -> None:
    body = body_of(name)
    assert "tostring" not in body
    assert not any("now" in word for word in declared(name, "ARGV").values())


def test_scripts_call_only_existing_functions_and_use_every_one_of_the_prelude() -> None:
    functions = set(re.findall(r"local function (\w+)", text_of("prelude")))
    calls = re.compile(r"(?<![\w.:])(?<!function )(\w+)\(")
    called = {word for name in SCRIPTS for word in calls.findall(body_of(name))}
    assert functions <= called | {*calls.findall(body_of("prelude"))}, "a function of the prelude that nothing uses"
    own = {word for name in SCRIPTS for word in re.findall(r"local function (\w+)", text_of(name))}
    assert called <= functions | own | {"tonumber", "type", "and", "or", "not", "if"}
