"""A laboratory: hosts with an address each, on a network that can be split.

Each host is a network namespace, and so is the router between them, which drops what a cut link carries: all cuts are
one table, set at once, and silent. No namespace has a name, or a route to anything else; they are gone once this
process and those on the hosts are, which end with it (`GuardedProcess`), even by ``kill -9``. Linux, as root:
``python -m tests.acceptance.partitions.lab`` makes one, or exits with the reason why it can't.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeVar

from refresher.embedded import GuardedProcess, RedisServer, ServerMissing
from tests.support.containers import CLONE_NEWNET, enter_network
from tests.support.movable_clock import MovableClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from refresher.embedded.server import EmbeddedServer

S = TypeVar("S", bound="EmbeddedServer")
Link = tuple[str, str]
"""The way from one host to another, by their names; the way back is another link."""

PROGRAMS: Final = {"ip": "iproute2", "iptables-restore": "iptables"}
IGNORES_LIMITS: Final = ("/bin/sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh")
"""A program's file that may not grow is no signal that kills it then."""
PREFIX: Final = "10.213"
"""Of all addresses. Private, and known to the laboratory alone: any number of them may run beside each other."""
OWN_NETWORK: Final = Path("/proc/thread-self/ns/net")


class Network:
    """A network namespace. Made empty, and kept by an open file."""

    def __init__(self, stack: ExitStack) -> None:
        with OWN_NETWORK.open("rb") as own:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            try:
                self._file: IO[bytes] = stack.enter_context(OWN_NETWORK.open("rb"))
            finally:
                enter_network(own)

    @property
    def path(self) -> str:
        """Return the file of the namespace, for other processes."""
        return f"/proc/{os.getpid()}/fd/{self._file.fileno()}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put this thread on the network: what it starts runs there, and its new connections begin there."""
        with OWN_NETWORK.open("rb") as own:
            enter_network(self._file)
            try:
                yield
            finally:
                enter_network(own)

    def configure(self, program: str, lines: Iterable[str]) -> None:
        """Run a program of `PROGRAMS` there, with these lines for its input."""
        argv = {"ip": ["ip", "-batch", "-"], "iptables-restore": ["iptables-restore", "--wait"]}[program]
        with self.entered():
            done = subprocess.run(
                argv, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, check=False
            )
        if done.returncode:
            raise OSError(f"{program}: {(done.stdout + done.stderr).strip()}")


@dataclass(frozen=True)
class Host:
    """A host of a laboratory; it may have a clock of its own, by which all go but servers other than Redis."""

    name: str
    address: str
    network: Network
    clock: MovableClock | None = None

    def on_its_clock(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """Return an environment of programs that go by the host's clock."""
        return {**env, **(self.clock.env if self.clock else {})}

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], log_file: Path, cwd: Path | None = None
    ) -> GuardedProcess:
        """Start a program there."""
        with self.network.entered():
            return GuardedProcess.start(argv, env=self.on_its_clock(env), log_file=log_file, cwd=cwd)

    def runs(self, kind: type[S]) -> type[S]:
        """Return a kind of server that runs there, at each of its starts, and listens at the host's address.

        A Redis or Sentinel begins with the configuration that it has itself written, and survives a full disk.
        """
        host = self

        class OnHost(kind):  # type: ignore[valid-type, misc]
            def _launch(self) -> None:
                with host.network.entered():
                    super()._launch()

            def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
                own = self.directory / "redis.conf"
                written = own.read_bytes() if own.exists() else None
                argv, env = super()._prepare()
                if written is not None:
                    own.write_bytes(written)
                if not issubclass(kind, RedisServer):
                    return argv, env
                return [*IGNORES_LIMITS, *argv], host.on_its_clock(env or os.environ)

        OnHost.host = self.address
        return OnHost


class Laboratory:
    """Hosts by their names, and the cuts between them. Everything ends with the stack.

    Each host has a clock of its own where there is a folder for it.

    Raises:
        ServerMissing: this machine or its user can't make one.
    """

    def __init__(self, stack: ExitStack, names: Iterable[str], clocks: Path | None = None) -> None:
        missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
        if missing:
            raise ServerMissing("no laboratory of hosts", f"apt-get install {' '.join(missing)}")
        try:
            self._router = Network(stack)
            with self._router.entered():
                Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
            self._router.configure("ip", ["link set lo up"])
            self.hosts = {name: self._host(stack, number, name, clocks) for number, name in enumerate(names, 1)}
            self.cut(())
        except OSError as error:
            raise ServerMissing("this machine makes no laboratory of hosts", f"{error}; root may elsewhere") from error

    def _host(self, stack: ExitStack, number: int, name: str, clocks: Path | None) -> Host:
        network, subnet = Network(stack), f"{PREFIX}.{number}"
        self._router.configure("ip", [
            f"link add to{number} type veth peer name eth0 netns {network.path}",
            f"address add {subnet}.1/24 dev to{number}",
            f"link set to{number} up",
        ])  # fmt: skip
        network.configure("ip", [
            "link set lo up", f"address add {subnet}.2/24 dev eth0", "link set eth0 up",
            f"route add {PREFIX}.0.0/16 via {subnet}.1",
        ])  # fmt: skip
        return Host(name, f"{subnet}.2", network, MovableClock(clocks / name) if clocks else None)

    def entered(self) -> AbstractContextManager[None]:
        """Put this thread where it reaches every host, whatever is cut, and nothing else."""
        return self._router.entered()

    def cut(self, links: Iterable[Link], lost_share: float = 1.0) -> None:
        """Drop what is sent over these links from now on, or a share of the packets, and over no other."""
        some = f"-m statistic --mode random --probability {lost_share} " if lost_share < 1 else ""
        drops = [
            f"-A FORWARD -s {self.hosts[source].address} -d {self.hosts[target].address} {some}-j DROP"
            for source, target in sorted(set(links))
        ]
        self._router.configure("iptables-restore", ["*filter", ":FORWARD ACCEPT", *drops, "COMMIT"])


def between(one: Iterable[str], other: Iterable[str]) -> frozenset[Link]:
    """Return the links between two sides, in both directions."""
    others = tuple(other)
    return frozenset(link for a in one for b in others for link in ((a, b), (b, a)))


@contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """Let no file of a program grow; one on a host takes that for an error, as on a full disk."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    yield
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def main() -> None:
    """Make a laboratory; exit with the reason if this machine can't."""
    try:
        with ExitStack() as stack:
            Laboratory(stack, ("one", "another")).cut(between(["one"], ["another"]))
    except ServerMissing as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
