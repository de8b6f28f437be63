"""Releases of Neo4j Community from Maven: the jars, copied once into the project's cache.

Maven's own settings determine the repository of artifacts; none is named here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from refresher.embedded.errors import ServerMissing

_CACHE: Final = Path(__file__).parents[2] / ".cache"
_DOWNLOAD_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class Neo4jRelease:
    """A release that is supported; ``java`` are the major versions that it runs on without a warning."""

    version: str
    main_class: str
    java: range


LTS: Final = Neo4jRelease("5.26.30", "org.neo4j.server.CommunityEntryPoint", range(17, 22, 4))
NEWEST: Final = Neo4jRelease("2026.09.0", "org.neo4j.server.Neo4jCommunity", range(21, 26))
_POM: Final = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>refresher.tests</groupId>
  <artifactId>neo4j-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.neo4j.app</groupId><artifactId>neo4j-server</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.neo4j</groupId><artifactId>neo4j</artifactId><version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


def neo4j_jars(release: Neo4jRelease) -> Path:
    """Return the directory with a release's jars, after copying them there the first time.

    Raises:
        ServerMissing: they are not there, and there is no Maven, or it could not get them.
    """
    folder = _CACHE / f"neo4j-{release.version}"
    folder.mkdir(parents=True, exist_ok=True)
    jars, complete = folder / "lib", folder / "complete"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test run may hold it; its end, even by a kill, frees the lock
        if not complete.exists():
            shutil.rmtree(jars, ignore_errors=True)
            _copy_dependencies(release, jars)
            complete.touch()
    return jars


def _copy_dependencies(release: Neo4jRelease, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ServerMissing("Neo4j's jars are not in .cache", "install Maven (mvn), which gets them")
    (target.parent / "pom.xml").write_text(_POM.format(version=release.version))
    command = [maven, "--batch-mode", "--quiet", "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
    try:
        done = subprocess.run(
            command,
            cwd=target.parent,
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_SECONDS,
            check=False,
            env=os.environ,
        )
    except subprocess.TimeoutExpired as error:
        raise ServerMissing("Neo4j's jars", f"Maven did not get them within {_DOWNLOAD_SECONDS:g} s") from error
    if done.returncode:
        raise ServerMissing("Neo4j's jars", f"Maven could not get them:\n{(done.stdout + done.stderr)[-2000:]}")
