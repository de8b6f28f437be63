"""The files of `deploy`, parsed for tests: compose.yaml's services, the Dockerfile's stages, env files, secrets."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
INSTRUCTION = re.compile(r"^([A-Z]+) +(.*)$")


def compose(*names: str) -> dict[str, Any]:
    """Return the compose files, merged as far as ours need it: mappings by key, lists appended, all else replaced."""
    merged: dict[str, Any] = {}
    for name in names or ("compose.yaml",):
        merged = _merged(merged, yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8")))
    return merged


def _merged(first: Any, second: Any) -> Any:
    if isinstance(first, dict) and isinstance(second, dict):
        return {**first, **{key: _merged(first.get(key), value) for key, value in second.items()}}
    return [*first, *second] if isinstance(first, list) and isinstance(second, list) else second


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the Dockerfile's instructions by the name of their stage, each with all its lines in one."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    found: dict[str, list[tuple[str, str]]] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if instruction := INSTRUCTION.match(line):
            word, rest = instruction.groups()
            if word == "FROM":
                stage = found.setdefault(rest.split(" AS ")[1], [])
            stage.append((word, rest))
    return found


def image(stage: str) -> dict[str, list[str]]:
    """Return an image's CMD and HEALTHCHECK, each as a list of words."""
    said = dict(stages()[stage])
    return {word: json.loads(said[word][said[word].index("[") :]) for word in ("CMD", "HEALTHCHECK")}


def environment(*files: Path) -> dict[str, str]:
    """Return the variables of env files, as systemd and compose both read them when nothing is quoted."""
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def directives(unit: Path, name: str) -> list[str]:
    """Return the values of a unit's directive, in their order."""
    return re.findall(rf"^{name}=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)


def copy_with_secrets(folder: Path, *arguments: str) -> Path:
    """Copy `deploy`, with secrets of its own and the examples' queries; return the copy's path."""
    copied = folder / "deploy"
    shutil.copytree(DEPLOY, copied, ignore=shutil.ignore_patterns("secrets", "queries", "__pycache__"))
    shutil.copytree(ROOT / "docs" / "examples", copied / "queries", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([copied / "new-secrets", *arguments], check=True, capture_output=True)
    return copied
