"""Releases of Neo4j Community and APOC from Maven, whose jars are copied once into a cache.

The cache is a checkout's ``.cache``, or otherwise ``refresher`` in the user's cache. Maven's settings determine the
repository.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from refresher.embedded.errors import ServerMissing

_CHECKOUT: Final = Path(__file__).parents[2]
_DOWNLOAD_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class Neo4jRelease:
    """A supported release; ``java`` are the major versions of Java on which it runs without a warning.

    ``apoc`` is its release of APOC, empty if Maven has none.
    """

    version: str
    main_class: str
    java: range
    apoc: str = ""


LTS: Final = Neo4jRelease("5.26.30", "org.neo4j.server.CommunityEntryPoint", range(17, 22, 4), apoc="5.26.12")
NEWEST: Final = Neo4jRelease("2026.09.0", "org.neo4j.server.Neo4jCommunity", range(21, 26))
_POM: Final = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>refresher</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY: Final = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)


def neo4j_jars(release: Neo4jRelease) -> Path:
    """Return the directory with a release's jars, after copying them there the first time.

    Raises:
        ServerMissing: they are not there, and there is no Maven, or it could not get them.
    """
    return _jars(
        "neo4j",
        release.version,
        [("org.neo4j.app", "neo4j-server", release.version), ("org.neo4j", "neo4j", release.version)],
    )


def apoc_jars(release: Neo4jRelease) -> Path:
    """Return the directory with the jars of a release's APOC, after copying them there the first time.

    Raises:
        ServerMissing: as for `neo4j_jars`.
    """
    return _jars(
        "apoc",
        release.apoc,
        [
            ("org.neo4j.procedure", "apoc-core", release.apoc),
            ("org.neo4j.procedure", "apoc-common", release.apoc),
            ("com.jayway.jsonpath", "json-path", "2.9.0"),  # contained in a released apoc-core, but not in Maven's
        ],
    )


def _cache() -> Path:
    if (_CHECKOUT / "pyproject.toml").exists():
        return _CHECKOUT / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "refresher"


def _jars(name: str, version: str, artifacts: Sequence[tuple[str, str, str]]) -> Path:
    folder = _cache() / f"{name}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    jars, complete = folder / "lib", folder / "complete"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may hold it; its end, even by a kill, releases it
        if not complete.exists():
            shutil.rmtree(jars, ignore_errors=True)
            dependencies = "\n".join(_DEPENDENCY.format(*artifact) for artifact in artifacts)
            (folder / "pom.xml").write_text(_POM.format(name=name, dependencies=dependencies))
            _copy_dependencies(name, jars)
            complete.touch()
    return jars


def _copy_dependencies(name: str, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ServerMissing(f"no jars of {name} in {target.parent}", "install Maven (mvn), which gets them")
    command = [
        maven, "--batch-mode", "--quiet", "dependency:copy-dependencies", "-DincludeScope=runtime",
        f"-DoutputDirectory={target}",
    ]  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603 - ours
            command,
            cwd=target.parent,
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_SECONDS,
            check=False,
            env=os.environ,
        )
    except subprocess.TimeoutExpired as error:
        raise ServerMissing(f"the jars of {name}", f"Maven did not get them within {_DOWNLOAD_SECONDS:g} s") from error
    if done.returncode:
        raise ServerMissing(f"the jars of {name}", f"Maven could not get them:\n{(done.stdout + done.stderr)[-2000:]}")
