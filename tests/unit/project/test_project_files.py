"""The project's files and pages, compared with the code."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import api_client
import refresher
from api_client.protocol import keys
from api_client.protocol.entry import FIXED_HEADER_BYTES, TOKEN_OFFSET
from api_client.protocol.lease import RecordState
from tests.support.requirements import skip_or_fail
from tests.support.settings_page import PAGE, from_code, names_on_page, settings_in_code
from tests.support.steps import STEPS

ROOT = Path(__file__).parents[3]
# Written so that this file does not contain what it searches for.
REGISTRIES = re.compile(
    r"pypi[.]org|python[h]osted|npmj[s][.]|proxy[.]golang|(repo1?|central)[.]maven|crates[.]io|deb[.]debian[.]org"
    r"|[d]evpi|[a]rtifactory|[n]exus/repository",
    re.IGNORECASE,
)
INDEX_OPTIONS = re.compile(r"--(extra-)?index-url|--find-links|--trusted-host|^-i\s|^--?f\s", re.MULTILINE)
HOMES = re.compile(r"/(home|Users)/[a-z]|/ro[o]t\b|[.]pyen[v]")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@cache
def committed() -> dict[str, str]:
    """Return every committed text file by its path."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    if listed.returncode:
        skip_or_fail("not a git checkout")
    texts = {}
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            try:
                texts[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    return texts


def markdown() -> dict[str, str]:
    return {name: text for name, text in committed().items() if name.endswith(".md")}


def table_under(text: str, heading: str) -> list[list[str]]:
    """Return the rows of the first table under a heading, without its head; cells without code marks."""
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_no_file_names_a_package_registry_or_this_machine() -> None:
    found = [
        (name, match[0])
        for name, text in committed().items()
        for pattern in (REGISTRIES, HOMES)
        for match in pattern.finditer(text)
    ]
    assert found == []


def test_the_constraints_are_exact_and_name_no_index() -> None:
    text = committed()["constraints.txt"]
    assert not INDEX_OPTIONS.search(text)
    pins = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin)] == []
    assert len(pins) == len({pin.split("==")[0].lower().replace("_", "-") for pin in pins}) > 20


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads(committed()["pyproject.toml"])["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.match(r"[A-Za-z0-9._-]+", one)[0].lower() for one in wanted} - {"refresher"}  # type: ignore[index]
    pinned = {line.split("==")[0].lower() for line in committed()["constraints.txt"].splitlines() if "==" in line}
    assert names <= pinned


def test_the_page_of_settings_is_that_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert sorted(names_on_page(text)) == sorted({name for name, *_ in settings_in_code()})
    assert text == from_code(text), "python -m tests.support.settings_page writes it"


def test_a_setting_given_its_default_from_the_page_equals_the_unset_one() -> None:
    defaults = dict(re.findall(r"^\| `(\w+)`.*? \| (\S+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    for name, _, settings, field in settings_in_code():
        said = settings.from_env({name: defaults[name].strip("`–")})
        assert getattr(said, field) == getattr(settings(), field), name


def test_the_map_of_the_modules_names_each_folder_and_nothing_that_does_not_exist() -> None:
    section = committed()["docs/development/architecture.md"].split("\n## Layout\n", 1)[1].split("\n## ", 1)[0]
    for package, rows in zip(("api_client", "refresher"), re.split(r"\| in `\w+` \|", section)[1:], strict=True):
        named = set(re.findall(r"`([a-z_]+)`", rows))
        there = {path.stem for path in (ROOT / package).rglob("[a-z]*") if path.suffix in {"", ".py"}}
        folders = {path.name for path in (ROOT / package).glob("[a-z]*/")}
        assert named - there == set()
        assert folders - named == set()


def test_the_picture_of_the_layout_shows_the_layers_of_the_import_contracts() -> None:
    contracts = tomllib.loads(committed()["pyproject.toml"])["tool"]["importlinter"]["contracts"]
    layers = {contract["containers"][0]: contract["layers"] for contract in contracts if "containers" in contract}
    for package in ("api_client", "refresher"):
        column = committed()["docs/pictures/ladder.svg"].split(f">{package}</text>", 1)[1].split('font-size="16"', 1)[0]
        rungs = re.findall(r'font-weight="600" fill="#0f172a">([a-z_ ·]+)<', column)
        named = re.findall(r"\w+", " ".join(layers[package]).replace("_version", ""))
        assert re.findall(r"\w+", " ".join(rungs)) == named, package


def test_the_key_table_is_that_of_the_code() -> None:
    in_code = [
        re.split(r"\s{2,}", line.replace("``", "`").replace("`", ""), maxsplit=2)
        for line in (keys.__doc__ or "").splitlines()
        if line.startswith("``")
    ]
    in_docs = [
        [cell.replace("`", "") for cell in row] for row in table_under(committed()["docs/reference/formats.md"], "Keys")
    ]
    assert in_docs == in_code
    assert len(in_docs) == 14


def test_the_header_table_and_the_steps_are_those_of_the_code() -> None:
    text = committed()["docs/development/architecture.md"]
    offsets = {
        row[2].strip("*"): int(row[0])
        for row in table_under(committed()["docs/reference/formats.md"], "The entry's header")
    }
    assert offsets["token"] == TOKEN_OFFSET
    assert max(offsets.values()) == FIXED_HEADER_BYTES
    record = text.split("\n## The lease record\n", 1)[1].split("\n## ", 1)[0]
    named = [line.split("|")[1].strip().strip("`") for line in record.splitlines() if line.startswith("|")]
    assert {state.value for state in RecordState if state is not RecordState.IDLE} <= set(named)
    assert set(STEPS) <= set(named)


def test_hosted_checks_and_commit_hooks_run_the_project_s_own_commands() -> None:
    assert "\n      - run: .ci/run\n" in committed()[".github/workflows/ci.yml"]
    assert "\n        entry: make lint\n" in committed()[".pre-commit-config.yaml"]


def test_the_version_stands_in_one_place() -> None:
    version = api_client.__version__
    assert refresher.__version__ == version
    holders = [name for name, text in committed().items() if f'"{version}"' in text and name.endswith((".py", ".toml"))]
    assert holders == ["api_client/_version.py"]
    assert f"## [{version}]" in committed()["CHANGELOG.md"]


def test_every_relative_link_leads_somewhere() -> None:
    broken = [
        (name, target)
        for name, text in markdown().items()
        for target in LINK.findall(text)
        if not re.match(r"[a-z]+:|#", target) and not (ROOT / name).parent.joinpath(target.split("#")[0]).exists()
    ]
    assert broken == []


def test_every_file_of_the_project_that_is_named_exists() -> None:
    named = re.compile(r"`((?:tests|api_client|refresher|benchmarks|deploy|docs)/[A-Za-z0-9_./-]+)`")
    paths = [(name, path) for name, text in markdown().items() for path in named.findall(text) if "NAME" not in path]
    made_by_hand = {"deploy/queries", "deploy/secrets"}
    assert [(name, path) for name, path in paths if path not in made_by_hand and not (ROOT / path).exists()] == []


def test_every_module_that_a_script_runs_exists() -> None:
    scripts = "\n".join(committed()[name] for name in (".ci/run", "Makefile"))
    modules = set(re.findall(r"(?:-m|from) ((?:tests|refresher|benchmarks)[.][\w.]+)", scripts))
    assert len(modules) >= 3
    assert [module for module in modules if find_spec(module) is None] == []


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("redis-cache.conf", {"maxmemory-policy": "allkeys-lru", "appendonly": "no", "save": '""'}),
        ("redis-broker.conf", {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec"}),
    ],
)
def test_the_redis_configurations_evict_and_persist_as_cache_and_broker_require(
    file: str, expected: dict[str, str]
) -> None:
    lines = (ROOT / "deploy" / file).read_text(encoding="utf-8").splitlines()
    found = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    assert {name: found.get(name) for name in expected} == expected
    assert found["bind"] == "127.0.0.1 -::1"
    assert found["protected-mode"] == "yes"
