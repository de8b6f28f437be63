"""A container engine for tests: podman with storage, networks and processes of its own, all removed at the end.

It runs in namespaces of its own. Its mounts and processes end with this process, even with one that is killed; what a
compose file publishes on loopback is published on a loopback of the engine's own, and collides with nothing.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Self

import psutil

from refresher.embedded import GuardedProcess, ServerMissing
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

NEEDED: Final = {
    "podman": "podman", "runc": "runc", "catatonit": "catatonit", "iptables": "iptables", "ip": "iproute2",
    "/usr/lib/podman/netavark": "netavark", "/usr/lib/podman/aardvark-dns": "aardvark-dns",
}  # fmt: skip
"""What an engine consists of, each program with its package."""

COMMAND_SECONDS: Final = 10 * MAX_WAIT_SECONDS  # a build installs what the image needs
CLONE_NEWNET: Final = 0x40000000
NAMESPACES: Final = ("unshare", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")
# catatonit is the first process of these namespaces: it reaps what its engine leaves behind.
BEGIN: Final = (
    "mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /dev/shm && ip link set lo up && echo begun && exec catatonit -P"
)
CONTAINERS_CONF: Final = """
[containers]
# Limits that a machine may not let anybody raise.
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "/run/networks"
"""
STORAGE_CONF: Final = """
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "/run/containers/storage"
[storage.options]
additionalimagestores = {stores}
"""


class Engine:
    """An engine that runs; made by `start`. ``folder`` holds what it stores: images, layers, volumes."""

    def __init__(self, folder: Path, process: GuardedProcess, env: dict[str, str]) -> None:
        self._folder, self._process, self._env = folder, process, env
        self._first = 0

    @classmethod
    def start(cls, folder: Path, *image_stores: Path) -> Self:
        """Start an engine, which also finds the images of other engines' folders.

        Raises:
            ServerMissing: a program of it is not installed, or this machine does not allow containers.
        """
        missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
        if missing:
            raise ServerMissing("no container engine", f"apt-get install {' '.join(missing)}")
        folder.mkdir(parents=True, exist_ok=True)
        files = {
            "CONTAINERS_CONF": ("containers.conf", CONTAINERS_CONF),
            "CONTAINERS_STORAGE_CONF": (
                "storage.conf",
                STORAGE_CONF.format(folder=folder, stores=[f"{store}/storage" for store in image_stores]),
            ),
        }
        for name, text in files.values():
            (folder / name).write_text(text, encoding="utf-8")
        env = {**os.environ, **{variable: str(folder / name) for variable, (name, _) in files.items()}}
        # Health checks run only on request: there is no systemd for their timers.
        env["DISABLE_HC_SYSTEMD"] = "true"
        log = folder / "engine.log"
        log.unlink(missing_ok=True)
        process = GuardedProcess.start([*NAMESPACES, "sh", "-c", BEGIN], log_file=log)
        engine = cls(folder, process, env)
        if not process.wait_until(lambda: "begun" in process.tail_of_log(), MAX_WAIT_SECONDS):
            process.kill()
            raise ServerMissing("this machine runs no containers", process.tail_of_log() or "namespaces are forbidden")
        [first] = psutil.Process(process.pid).children()
        engine._first = first.pid
        return engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove running containers, which also removes their cgroups, and end."""
        with suppress(AssertionError):
            self.podman("rm", "--all", "--force", "--time", "0")
        self._process.kill()
        for parent in Path("/sys/fs/cgroup").glob("**/libpod_parent"):
            for cgroup in (parent / "conmon", parent):
                with suppress(OSError):  # another engine's, too
                    cgroup.rmdir()

    def run(
        self, *command: str, stdin: IO[bytes] | None = None, online: bool = False, may_fail: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a program where the engine is, on its network or, ``online``, on this machine's."""
        words = ["nsenter", f"--target={self._first}", "--mount", "--pid", *(() if online else ("--net",))]
        done = subprocess.run(
            [*words, f"--wd={self._folder}", "--", *command],
            env=self._env, stdin=stdin or subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=COMMAND_SECONDS,
        )  # fmt: skip
        assert may_fail or done.returncode == 0, f"{' '.join(command[:3])} …: {(done.stdout + done.stderr)[-4000:]}"
        return done

    def podman(self, *words: str, **options: Any) -> str:
        """Run podman, and return its output."""
        return self.run("podman", *words, **options).stdout.strip()

    def build(self, tag: str, *words: str, mounts: dict[Path, str] | None = None) -> None:
        """Build an image, with pip's settings and the certificates of this machine: they stay out of the image."""
        mounted = {**pip_settings(self._folder), **(mounts or {})}
        volumes = [f"--volume={source}:{target}:ro" for source, target in mounted.items()]
        # The format of Docker's, since that of OCI has no HEALTHCHECK.
        options = ("--quiet", "--isolation=chroot", "--network=host", "--format=docker", "--tag", tag, *volumes)
        self.podman("build", *options, *words, online=True)

    def execute(self, container: str, *command: str, **options: Any) -> str:
        """Run a program in a container, and return its output."""
        return self.podman("exec", container, *command, **options)

    def is_healthy(self, container: str) -> bool:
        """Run the container's health check now, and return its result."""
        return self.run("podman", "healthcheck", "run", container, may_fail=True).returncode == 0

    def until_healthy(self, *containers: str) -> None:
        """Wait until all of these containers are healthy."""
        for name in containers:
            eventually(lambda name=name: self.is_healthy(name), f"{name} is healthy: {self.log(name)}")  # type: ignore[misc]

    def log(self, container: str) -> str:
        """Return the log of a container."""
        done = self.run("podman", "logs", "--tail=200", container, may_fail=True)
        return done.stdout + done.stderr

    @contextmanager
    def network(self) -> Iterator[None]:
        """Put this thread on the engine's network: its new connections reach published ports and containers."""
        with (
            Path("/proc/thread-self/ns/net").open("rb") as own,
            Path(f"/proc/{self._first}/ns/net").open("rb") as engine_s,
        ):
            enter_network(engine_s)
            try:
                yield
            finally:
                enter_network(own)


def enter_network(namespace: IO[bytes]) -> None:
    """Call setns(2) for this thread: Python has it since 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace.fileno(), CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def pip_settings(folder: Path) -> dict[Path, str]:
    """Return files with this machine's settings of pip by their place in a builder; variables override its file."""
    own, certificates = folder / "pip.conf", Path("/etc/ssl/certs")
    variables = {name[4:].lower().replace("_", "-"): value for name, value in os.environ.items() if name[:4] == "PIP_"}
    own.touch(mode=0o600)
    own.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in variables.items()), encoding="utf-8")
    places = {Path("/etc/pip.conf"): "/etc/xdg/pip/pip.conf", own: "/etc/pip.conf", certificates: str(certificates)}
    return {source: target for source, target in places.items() if source.exists()}
