"""The trigger's statement: one plan, however much a transaction changes."""

from __future__ import annotations

import re
from importlib.resources import files

from refresher.feed.outbox import _ACKNOWLEDGE


def params_of(cypher: str) -> set[str]:
    return set(re.findall(r"\$(\w+)", cypher))


def test_no_parameter_is_a_list_whose_length_is_the_change_s() -> None:
    """For one that is ten times as long Neo4j makes a new plan, half a second long; the elements of a map may be."""
    note = (files("refresher.feed") / "trigger.cypher").read_text("utf-8")
    assert params_of(note) == {"tx", "nodes", "types", "limit"}
    assert params_of(_ACKNOWLEDGE) == {"taken"}
