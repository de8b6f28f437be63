"""The chart's values: a template reads each; an unread one would have no effect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).parents[3] / "deploy/helm/refresher"
TEMPLATES = "".join(path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").iterdir()))


def paths(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from paths(value, (*above, name))
        else:
            yield (*above, name)


VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", list(paths(VALUES)), ids=".".join)
def test_a_template_reads_each_value_or_the_map_that_contains_it(path: tuple[str, ...]) -> None:
    # A template may have a name for a map at the top, such as $worker.
    read = [name for name in path[1:] or path if re.search(rf"\.{re.escape(name)}\b", TEMPLATES)]
    assert read, f"no template reads {'.'.join(path)}"
