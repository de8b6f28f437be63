"""Checks of a wheel and an sdist: ``python -m tests.support.distribution dist``."""

from __future__ import annotations

import configparser
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from trove_classifiers import classifiers

from tests.support.installations import PACKAGES, ROOT, files_of

# Without one of these the project can't be used, built, or distributed legally.
MUST_HAVE: Final = (
    "api_client/py.typed", "refresher/py.typed", "api_client/protocol/lua/commit.lua", "refresher/web/page.html",
)  # fmt: skip
SOURCES_MUST_HAVE: Final = (
    "PKG-INFO", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt", "Makefile",
    "benchmarks/__main__.py", "tests/conftest.py", "deploy/README.md", "docs/index.md",
)  # fmt: skip
RELATIVE_LINK: Final = re.compile(r"\]\((?!https?:)[^)]+\)")
LICENCE: Final = "licenses/LICENSE"


def faults_of_wheel(wheel: Path, tree: Path = ROOT) -> Iterator[str]:
    """Return the faults of a wheel that was built of ``tree``."""
    with zipfile.ZipFile(wheel) as archive:
        texts = {name: archive.read(name) for name in archive.namelist()}
    (about,) = {name.split("/")[0] for name in texts if name.split("/")[0].endswith(".dist-info")}
    inside = {name for name in texts if not name.startswith(f"{about}/")}
    wanted = {name for name in files_of(tree) if name.split("/")[0] in PACKAGES}
    yield from (f"wheel: {name} is missing" for name in sorted(wanted | set(MUST_HAVE)) if name not in inside)
    yield from (f"wheel: {name} does not belong there" for name in sorted(inside - wanted))
    if texts.get(f"{about}/{LICENCE}") != (tree / "LICENSE").read_bytes():
        yield "wheel: the licence is missing"
    commands = configparser.ConfigParser()
    commands.read_string(texts.get(f"{about}/entry_points.txt", b"").decode())
    if not commands.has_option("console_scripts", "refresher"):
        yield "wheel: there is no command `refresher`"
    yield from faults_of_metadata(texts[f"{about}/METADATA"], tree)


def faults_of_metadata(raw: bytes, tree: Path = ROOT) -> Iterator[str]:
    """Return the faults of the metadata: values that an index would refuse, and values that differ from ours."""
    metadata = Metadata.from_email(raw, validate=True)  # raises if an index would refuse it
    if str(metadata.version) != version_of(tree):
        yield f"metadata: version {metadata.version}, and not {version_of(tree)}"
    if metadata.license_expression != "Apache-2.0" or metadata.license_files != ["LICENSE"]:
        yield "metadata: the licence is not named"
    unknown = sorted(set(metadata.classifiers or ()) - classifiers)
    yield from (f"metadata: there is no classifier {name!r}" for name in unknown)
    if metadata.description_content_type != "text/markdown" or not (metadata.description or "").startswith("#"):
        yield "metadata: the description is not the read me"
    elif relative := RELATIVE_LINK.search(metadata.description or ""):
        yield f"metadata: {relative[0]} leads nowhere on an index"
    base = {one.name for one in metadata.requires_dist or () if not _is_of_an_extra(one)}
    if base & {"neo4j", "flower", "prometheus_client", "numpy"} or "redis" not in base:
        yield f"metadata: a reader's installation would bring {sorted(base)}"


def _is_of_an_extra(requirement: Requirement) -> bool:
    return requirement.marker is not None and "extra" in str(requirement.marker)


def faults_of_sdist(sdist: Path) -> Iterator[str]:
    """Return the faults of an sdist."""
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    top = sdist.name.removesuffix(".tar.gz")
    inside = {name.removeprefix(f"{top}/") for name in names}
    yield from (f"sdist: {name} is missing" for name in (*SOURCES_MUST_HAVE, *MUST_HAVE) if name not in inside)
    yield from (f"sdist: {name} lies beside the one folder" for name in names if not name.startswith(f"{top}/"))
    left_over = ("__pycache__", ".venv/", "dist/", "build/", ".cache/", "deploy/secrets/", "test-artefacts/")
    yield from (f"sdist: {name} is left over" for name in sorted(inside) if any(part in name for part in left_over))


def version_of(tree: Path) -> str:
    """Return the version, from its one source."""
    text = (tree / "api_client" / "_version.py").read_text(encoding="utf-8")
    return text.split('"')[-2]


def main(folder: Path) -> int:
    """Print the faults of a folder's wheel and sdist; return 0 if there are none."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    faults = [*faults_of_wheel(wheel), *faults_of_sdist(sdist)]
    for line in faults or [f"{one.name}: {one.stat().st_size:,} bytes" for one in (wheel, sdist)]:
        print(line)  # noqa: T201
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
