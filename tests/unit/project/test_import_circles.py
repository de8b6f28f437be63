"""No module imports itself by way of others, names for type checkers alone included."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PACKAGES: Final = ("api_client", "refresher", "benchmarks")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path, modules: set[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            of_names = {f"{node.module}.{one.name}" for one in node.names}
            found |= of_names & modules or {node.module}
    return found & modules


def test_no_module_imports_itself_by_way_of_others() -> None:
    paths = {name_of(path): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    imports = {name: imports_of(path, set(paths)) - {name} for name, path in paths.items()}
    circle: list[str] = []
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []
