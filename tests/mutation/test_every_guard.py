"""Mutation tests of the scripts: with any guard left out, or any value changed, the suite must fail.

`lua_mutants` makes the mutants, `trial` runs the suite on each until a test fails. Equivalent mutants are listed here
with the reason, and must survive: so a reason that no longer holds is noticed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import redis

from api_client.transport.scripts import SCRIPTS
from tests.mutation.lua_mutants import BOUNDS, Reader, mutants, tokens
from tests.mutation.trial import PARTS, all_mutants, text_of
from tests.support.waiting import MAX_WAIT_SECONDS

if TYPE_CHECKING:
    from refresher.embedded import RedisServer

ROOT: Final = Path(__file__).parents[2]
PROCESSES: Final = 2
CONTRACT: Final = (
    "steps",
    "runs",
    "unchanged",
    "attempts",
    "invalidation",
    "bookmarks",
    "holder",
    "deadlines",
    "leftovers",
    "answers",
)
SUITE: Final = (
    *(f"tests/contract/test_lease_{name}.py" for name in CONTRACT),
    "tests/contract/test_quarantine.py",
    "tests/contract/test_scripts_on_redis.py",
    "tests/contract/test_live_versions.py",
    "tests/contract/test_budget.py",
    "tests/contract/test_tag_steps.py",
    "tests/property/test_lease_machine.py",
    "tests/contract/test_interleavings.py",
)
# Tests with a hundred threads test no guard; of the interleavings, those that take seconds.
LEFT_OUT: Final = "not hundred and not (every_invariant and (mishap or repl or reader))"

NO_DEADLINE = "a missing record has the deadline 0, which has passed"
UNIQUE = "a number is drawn once, so a generation, hard or not, is never a run's token"
ABSENT_MATCHES_NOTHING = "an absent field is false then, and no text equals it either"
UNSIGNED = "struct reads I8 as unsigned: a negative number would be beyond 2^53, and is refused for that"
EQUIVALENT: Final[dict[tuple[str, str], str]] = {
    ("acquire", "without not record.state or"): NO_DEADLINE,
    ("claim", "without not record.state or"): NO_DEADLINE,
    ("commit", "entry.generation > entry.token: > ⟶ >="): UNIQUE,
    ("commit", "record.hard > record.token: > ⟶ >="): UNIQUE,
    ("commit", "record.generation > record.token: > ⟶ >="): UNIQUE,
    ("fail", "record.generation < record.token: < ⟶ <="): UNIQUE,
    ("fail", "record.bookmarks_since = 0: 0 ⟶ 1"): "the first microsecond of 1970 is as long ago",
    ("tag_page", "'at:' .. ARGV[1]: without 'at:' .."): "no other field of the state has a number for its name",
    ("tag_take", "-inf', text(now), 'LIMIT', 0, 1)[1]: 1 ⟶ 2"): "only the first is used",
    ("tag_take", "LERATED), '+inf', 'LIMIT', 0, 1)[1]: 1 ⟶ 2"): "only the first is used",
    (
        "tag_take",
        "'ZADD', KEYS[1], 'XX', text(now + lease_us), due: without , 'XX'",
    ): "the script has just read the member, and nothing runs in between",
    ("prelude", "true ⟶ false (no. 3)"): "the word contains no special character of a pattern",
    ("prelude", "redis.call('PTTL', key) < life_ms: < ⟶ <="): "an equal lifetime is set again",
    (
        "prelude",
        "without type(head) ~= 'string' or",
    ): "an error of Redis is a table, and its length 0",
    (
        "prelude",
        "local LARGEST = 9007199254740992: 9007199254740992 ⟶ 9007199254740993",
    ): "beyond 2^53 the next number is the same",
    ("prelude", "dis.pcall('GETRANGE', key, 0, 51): 51 ⟶ 52"): "one more byte, which is not read",
    ("prelude", "nonce = string.sub(head, 45, 52),: 52 ⟶ 53"): "there are 52",
    ("prelude", "true ⟶ false (no. 2)"): "a newline stands for itself in a pattern, too",
    ("prelude", "without token < 0 or"): UNSIGNED,
    ("prelude", "without or generation < 0"): UNSIGNED,
    ("prelude", "f[2] or 0: without or 0"): "only a missing record has no deadline, and no step uses it",
    ("prelude", "f[9] or 0: without or 0"): "every run has a limit, and no step uses that of another record",
    ("prelude", "f[4] or '': without or ''"): ABSENT_MATCHES_NOTHING,
    ("prelude", "f[8] or '': without or ''"): ABSENT_MATCHES_NOTHING,
    ("prelude", "f[10] or '': without or ''"): ABSENT_MATCHES_NOTHING,
    ("prelude", "f[16] or '': without or ''"): ABSENT_MATCHES_NOTHING,
}


@pytest.fixture(scope="module")
def killers() -> dict[tuple[str, str], str | None]:
    """The test that killed each mutant, or None, by script and name."""
    job = {"tests": [*SUITE, "-k", LEFT_OUT], "doubted": list(EQUIVALENT)}
    trials = [begin_trial(job | {"shard": [which, PROCESSES]}) for which in range(PROCESSES)]
    found: dict[tuple[str, str], str | None] = {}
    try:
        # Read concurrently: a full pipe would block its trial.
        with ThreadPoolExecutor(PROCESSES) as pool:
            outputs = list(pool.map(lambda trial: trial.communicate(), trials))
    finally:
        for trial in trials:
            trial.kill()
    for trial, (out, errors) in zip(trials, outputs, strict=True):
        assert trial.returncode == 0, f"the suite must be green on the scripts as they are: {errors[-4_000:]}"
        for line in map(json.loads, out.splitlines()):
            if "script" in line:
                found[line["script"], line["name"]] = line["killer"]
    return found


def begin_trial(job: dict[str, Any]) -> subprocess.Popen[str]:
    trial = subprocess.Popen(
        [sys.executable, "-m", "tests.mutation.trial"], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert trial.stdin is not None
    trial.stdin.write(json.dumps(job))
    trial.stdin.close()
    trial.stdin = None
    return trial


@pytest.mark.long
@pytest.mark.timeout(25 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize("script", PARTS)
def test_the_suite_fails_on_every_mutant_but_the_equivalent_ones(
    killers: dict[tuple[str, str], str | None], script: str
) -> None:
    of_this = {name: killer for (other, name), killer in killers.items() if other == script}
    assert of_this.keys() == {mutant.name for mutant in mutants(script, text_of(script))}
    survivors = {name for name, killer in of_this.items() if killer is None}
    assert survivors == {name for other, name in EQUIVALENT if other == script}


def test_every_mutant_is_a_script_that_redis_accepts(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url()) as client:
        for mutant in all_mutants():
            texts = {"prelude": text_of("prelude"), "step": text_of("renew")}
            texts["prelude" if mutant.script == "prelude" else "step"] = mutant.text
            client.script_load("\n".join(texts.values()))
            assert mutant.text != text_of(mutant.script)


def test_mutants_have_unique_names_and_include_the_equivalent_ones() -> None:
    names = {(mutant.script, mutant.name) for mutant in all_mutants()}
    assert len(names) == len(all_mutants())
    assert set(EQUIVALENT) <= names
    assert set(PARTS) == {"prelude", *SCRIPTS}


@pytest.mark.parametrize("part", PARTS)
def test_every_condition_every_part_of_one_and_every_bound_is_mutated(part: str) -> None:
    source = text_of(part)
    words = Counter(token.text for token in tokens(source))
    changes = Reader(source).changes()
    put = Counter(change.text for change in changes)
    assert put["true"] == words["if"] + words["elseif"]
    assert put["false"] == words["if"] + words["elseif"] + words["true"]
    moved = [change for change in changes if change.text == BOUNDS.get(source[change.start : change.end])]
    assert len(moved) == sum(words[bound] for bound in BOUNDS)
    dropped = [source[change.start : change.end].split() for change in changes if not change.text]
    assert sum(bool({parts[0], parts[-1]} & {"and", "or"}) for parts in dropped) >= words["and"] + words["or"]


# A declaration, a result without a value, and what continues the lines of one.
UNCHANGED: Final = re.compile(r"--|local |else$|end$|return( nil| \{)?$|\}|'|$")


@pytest.mark.parametrize("part", PARTS)
def test_every_line_that_does_something_is_mutated(part: str) -> None:
    source = text_of(part)
    changed: set[int] = set()
    for change in Reader(source).changes():
        changed.update(range(source.count("\n", 0, change.start), source.count("\n", 0, change.end) + 1))
    lines = dict(enumerate(line.strip() for line in source.splitlines()))
    assert [line for number, line in lines.items() if number not in changed and not UNCHANGED.match(line)] == []
