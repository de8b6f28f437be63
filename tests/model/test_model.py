"""Spin looks at every state of the model within the bounds of `cases`: what must hold holds, what is broken breaks.

`make test-long` adds the worlds that take minutes, and what the page tells beside: the first study, and the shortest
way to each error.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from api_client.transport.scripts import STEPS, TAG_STEPS
from tests.model import page
from tests.model.cases import BROKEN, INVARIANTS, ROWS, TAGS_BROKEN, TAGS_UPHELD, UPHELD, Case
from tests.model.checker import MODEL, Result, check, missing_tools, shortest_way, spin_version
from tests.model.timelines import STORIES, Story, story_text
from tests.support.requirements import IS_LONG, skip_or_fail

# Each takes some seconds of a core, the largest 20, and the long ones minutes; a machine that is busy with other things
# gives much less than one.
pytestmark = pytest.mark.timeout(7_200 if IS_LONG else 900)

# The numbers on the page are those of this version. Another one may number states another way, and must find the same.
SPIN_OF_THE_PAGE = "6.5.2"


@pytest.fixture(scope="module", autouse=True)
def spin() -> str:
    """Spin's version, on a machine that has all that is needed."""
    if missing := missing_tools():
        skip_or_fail(f"not installed: {', '.join(missing)}")
    return spin_version()


@pytest.fixture(scope="module")
def text() -> str:
    return page.PAGE.read_text(encoding="utf-8")


def named(case: Case | Story) -> str:
    return case.name.replace(" | ", ", ")


@pytest.mark.parametrize("case", [case for case in (*UPHELD, *TAGS_UPHELD) if IS_LONG or not case.is_long], ids=named)
def test_every_invariant_holds_in_every_state(case: Case, tmp_path: Path, text: str, spin: str) -> None:
    result = check(case, tmp_path)
    assert not result.violated, result.events
    if not case.is_long:
        stands_on_the_page(result, "tags" if case in TAGS_UPHELD else "upheld", text, spin)


@pytest.mark.parametrize("case", [*BROKEN, *TAGS_BROKEN], ids=named)
def test_a_broken_variant_is_refuted_by_the_invariant_that_it_breaks(
    case: Case, tmp_path: Path, text: str, spin: str
) -> None:
    result = check(case, tmp_path)
    assert INVARIANTS.get(result.violated) == INVARIANTS[case.violated], result.events
    stands_on_the_page(result, "tags-broken" if case in TAGS_BROKEN else "broken", text, spin)


@pytest.mark.long
@pytest.mark.parametrize("case", ROWS, ids=named)
def test_each_row_of_the_first_study_comes_out_as_it_did(case: Case, tmp_path: Path, text: str, spin: str) -> None:
    result = check(case, tmp_path)
    assert result.violated == case.violated, result.events
    stands_on_the_page(result, "rows", text, spin)


@pytest.mark.long
@pytest.mark.parametrize("story", STORIES, ids=named)
def test_the_page_tells_the_shortest_way_to_each_error(story: Story, tmp_path: Path, text: str, spin: str) -> None:
    told = story_text(story, shortest_way(story.case, tmp_path))
    assert told.count("\n| ") > 2
    if spin == SPIN_OF_THE_PAGE:
        assert told in page.section(text, "timelines"), "python -m tests.model --write"


def stands_on_the_page(result: Result, part: str, text: str, spin: str) -> None:
    if spin == SPIN_OF_THE_PAGE:
        assert page.line_of(result) in page.section(text, part), "python -m tests.model --write"


def test_each_invariant_has_a_broken_variant_and_one_that_the_page_tells() -> None:
    assert {case.violated for case in BROKEN} == set(INVARIANTS)
    assert {story.case.violated for story in STORIES} == set(INVARIANTS)


def test_each_script_is_a_step_of_the_model_and_is_taken_by_somebody() -> None:
    steps = (MODEL / "steps.pml").read_text(encoding="utf-8")
    others = "".join((MODEL / f"{name}.pml").read_text(encoding="utf-8") for name in ("actors", "lease"))
    for script in STEPS:
        assert f"\ninline {script}(" in steps, script
        assert f" {script}(" in others, script


def test_each_script_of_tags_is_in_their_model() -> None:
    model = (MODEL / "tags.pml").read_text(encoding="utf-8")
    # A sweep removes what may be forgotten, and the model has no time at which it may.
    assert [script for script in TAG_STEPS if f"{script}.lua" not in model] == ["tag_sweep"]
