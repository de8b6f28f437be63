"""Real Neo4j Community from Maven: the jars, copied once into the project's cache.

Maven's own settings determine the repository of artifacts; none is named here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from refresher.embedded.errors import ServerMissing

NEO4J_VERSION = "5.26.30"
_CACHE = Path(__file__).parents[2] / ".cache" / f"neo4j-{NEO4J_VERSION}"
_DOWNLOAD_SECONDS = 900.0
_POM = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>refresher.tests</groupId>
  <artifactId>neo4j-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.neo4j.app</groupId><artifactId>neo4j-server</artifactId><version>{NEO4J_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.neo4j</groupId><artifactId>neo4j</artifactId><version>{NEO4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def neo4j_jars() -> Path:
    """Return the directory with Neo4j's jars, after copying them there the first time.

    Raises:
        ServerMissing: they are not there, and there is no Maven, or it could not get them.
    """
    _CACHE.mkdir(parents=True, exist_ok=True)
    jars, complete = _CACHE / "lib", _CACHE / "complete"
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test run may hold it; its end, even by a kill, frees the lock
        if not complete.exists():
            shutil.rmtree(jars, ignore_errors=True)
            _copy_dependencies(jars)
            complete.touch()
    return jars


def _copy_dependencies(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ServerMissing("Neo4j's jars are not in .cache", "install Maven (mvn), which gets them")
    (_CACHE / "pom.xml").write_text(_POM)
    command = [maven, "--batch-mode", "--quiet", "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
    try:
        done = subprocess.run(
            command, cwd=_CACHE, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False, env=os.environ
        )
    except subprocess.TimeoutExpired as error:
        raise ServerMissing("Neo4j's jars", f"Maven did not get them within {_DOWNLOAD_SECONDS:g} s") from error
    if done.returncode:
        raise ServerMissing("Neo4j's jars", f"Maven could not get them:\n{(done.stdout + done.stderr)[-2000:]}")
