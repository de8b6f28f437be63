"""Spin's check of every state within the bounds of `cases`: invariants hold, and each broken variant violates its own.

`make test-long` adds the cases that take minutes, and the rest of the README: the first study, and the shortest path to
each error.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model import page
from tests.model.cases import BROKEN, INVARIANTS, PARTS, ROWS, Case
from tests.model.checker import MODEL, Result, check, missing_tools, shortest_way, spin_version
from tests.model.timelines import STORIES, Story, story_text
from tests.support.requirements import skip_or_fail
from tests.support.steps import STEPS, TAG_STEPS
from tests.support.waiting import MAX_WAIT_SECONDS

# Each takes some seconds of a core, the largest 20; a busy machine gives much less than a core.
pytestmark = pytest.mark.timeout(8 * MAX_WAIT_SECONDS)
# And these take minutes.
LONG = [pytest.mark.long, pytest.mark.timeout(60 * MAX_WAIT_SECONDS)]

# The numbers on the page are those of this version. Another one may count states differently, and must find the same.
SPIN_OF_THE_PAGE = "6.5.2"


@pytest.fixture(scope="module", autouse=True)
def spin() -> str:
    """Spin's version; skips without the required tools."""
    if missing := missing_tools():
        skip_or_fail(f"not installed: {', '.join(missing)}")
    return spin_version()


@pytest.fixture(scope="module")
def text() -> str:
    return page.PAGE.read_text(encoding="utf-8")


def named(case: Case | Story) -> str:
    return case.name.replace(" | ", ", ")


@pytest.mark.promise("Protocol", "I1 to I6 in every state of the model")
@pytest.mark.parametrize(
    ("part", "case"),
    [
        pytest.param(part, case, marks=LONG if case.is_long else (), id=named(case))
        for part in ("upheld", "tags", "feed")
        for case in PARTS[part]
    ],
)
def test_every_invariant_holds_in_every_state(part: str, case: Case, tmp_path: Path, text: str, spin: str) -> None:
    result = check(case, tmp_path)
    assert not result.violated, result.events
    if not case.is_long:
        stands_on_the_page(result, part, text, spin)


@pytest.mark.parametrize(
    ("part", "case"),
    [
        pytest.param(part, case, id=named(case))
        for part in ("broken", "tags-broken", "feed-broken")
        for case in PARTS[part]
    ],
)
def test_a_broken_variant_is_refuted_by_the_invariant_that_it_breaks(
    part: str, case: Case, tmp_path: Path, text: str, spin: str
) -> None:
    result = check(case, tmp_path)
    assert INVARIANTS.get(result.violated) == INVARIANTS[case.violated], result.events
    stands_on_the_page(result, part, text, spin)


@pytest.mark.long
@pytest.mark.timeout(60 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize("case", ROWS, ids=named)
def test_each_row_of_the_first_study_is_reproduced(case: Case, tmp_path: Path, text: str, spin: str) -> None:
    result = check(case, tmp_path)
    assert result.violated == case.violated, result.events
    stands_on_the_page(result, "rows", text, spin)


@pytest.mark.long
@pytest.mark.timeout(60 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize("story", STORIES, ids=named)
def test_the_page_shows_the_shortest_path_to_each_error(story: Story, tmp_path: Path, text: str, spin: str) -> None:
    timeline = story_text(story, shortest_way(story.case, tmp_path))
    assert timeline.count("\n| ") > 2
    if spin == SPIN_OF_THE_PAGE:
        assert timeline in page.section(text, "timelines"), "python -m tests.model --write"


def stands_on_the_page(result: Result, part: str, text: str, spin: str) -> None:
    if spin == SPIN_OF_THE_PAGE:
        assert page.line_of(result) in page.section(text, part), "python -m tests.model --write"


def test_each_invariant_has_a_broken_variant_and_a_story_on_the_page() -> None:
    assert {case.violated for case in BROKEN} == set(INVARIANTS)
    assert {story.case.violated for story in STORIES} == set(INVARIANTS)


def test_each_script_is_a_step_of_the_model_and_is_used_by_an_actor() -> None:
    steps = (MODEL / "steps.pml").read_text(encoding="utf-8")
    others = "".join((MODEL / f"{name}.pml").read_text(encoding="utf-8") for name in ("actors", "lease"))
    for script in STEPS:
        assert f"\ninline {script}(" in steps, script
        assert f" {script}(" in others, script


def test_each_tag_script_is_in_the_model_of_tags() -> None:
    model = (MODEL / "tags.pml").read_text(encoding="utf-8")
    # A sweep removes what has expired, and the model has no expiry.
    assert [script for script in TAG_STEPS if f"{script}.lua" not in model] == ["tag_sweep"]
