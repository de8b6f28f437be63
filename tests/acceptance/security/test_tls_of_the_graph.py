"""TLS to Neo4j, with a certificate authority of one's own."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from refresher.embedded import RedisServer
from refresher.embedded.neo4j_server import Neo4jServer
from refresher.errors import LoadFailed
from refresher.graph.loader import Graph
from refresher.ops.startup_checks import log_problems
from refresher.queries import Registry, query
from refresher.settings import WorkerSettings
from tests.servers.neo4j_server import SHORT_LIVED, neo4j_under_test
from tests.support.authority import HOST, Authority, Certificate
from tests.support.waiting import MAX_WAIT_SECONDS, eventually_without

queries = Registry()


@query("one", ttl="1h", grace="1h", into=queries)
def one(tx: Any) -> int:
    """The smallest read."""
    return int(tx.run("RETURN 1 AS one").single()["one"])


class TlsNeo4j(Neo4jServer):
    """A Neo4j that also speaks without TLS, so that the test can start it; no client may fall back to that."""

    certificate: Certificate

    @classmethod
    def with_certificate(cls, certificate: Certificate) -> Self:
        server = cls(neo4j_under_test(), 2 * MAX_WAIT_SECONDS, SHORT_LIVED)
        server.certificate = certificate
        server._launch_or_clean_up()
        return server

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        prepared = super()._prepare()
        with (self.directory / "neo4j.conf").open("a") as config:
            config.write(
                "server.bolt.tls_level=OPTIONAL\n"
                "dbms.ssl.policy.bolt.enabled=true\n"
                f"dbms.ssl.policy.bolt.base_directory={self.certificate.key.parent}\n"
                f"dbms.ssl.policy.bolt.private_key={self.certificate.key.name}\n"
                f"dbms.ssl.policy.bolt.public_certificate={self.certificate.certificate.name}\n"
                "dbms.ssl.policy.bolt.client_auth=NONE\n"
            )
        return prepared

    def settings(self, scheme: str, ca_certs: Path | None) -> WorkerSettings:
        """Return a worker's settings for it."""
        return WorkerSettings(
            neo4j_uri=f"{scheme}://{self.host}:{self.ports[0]}",
            neo4j_password=self.password,
            neo4j_ca_certs=str(ca_certs or ""),
        )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[TlsNeo4j]:
    with TlsNeo4j.with_certificate(authority.issue("right")) as started:
        yield started


@contextmanager
def tls_listener(certificate: Certificate) -> Iterator[int]:
    """Complete TLS handshakes on a port, and no more: a client that rejects the certificate ends it there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    listener = socket.create_server((HOST, 0))

    def accept() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                accepted, _ = listener.accept()
                with suppress(OSError), context.wrap_socket(accepted, server_side=True) as secured:
                    secured.settimeout(10)
                    secured.recv(1)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(MAX_WAIT_SECONDS)


def load(settings: WorkerSettings) -> object:
    found = queries.find("one", 1)
    assert found is not None
    with closing(Graph(settings)) as graph:
        return graph.load(found, [{}], [None], (), 10.0)[0].value


def loaded(settings: WorkerSettings) -> object:
    """Load until it succeeds: on a busy machine a handshake takes longer than the driver waits."""
    return eventually_without((LoadFailed,), lambda: load(settings), "a load")


def test_a_load_over_tls_trusts_the_configured_certificate_authority_and_no_other(
    server: TlsNeo4j, authority: Authority, tmp_path: Path
) -> None:
    assert loaded(server.settings("bolt", None)) == 1  # it speaks without TLS, too, and no client may fall back to that
    for scheme in ("bolt+s", "neo4j+s"):
        assert loaded(server.settings(scheme, authority.root)) == 1
        for wrong in (None, Authority(tmp_path / scheme).root):
            with pytest.raises(LoadFailed) as caught:
                load(server.settings(scheme, wrong))
            assert caught.value.kind == "graph_unavailable"
            assert server.password not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda authority: authority.issue("elsewhere", host="graph.elsewhere.example"),
            "[the certificate: IP address",
        ),
        (lambda authority: authority.issue("expired", expired=True), "[the certificate: certificate has expired]"),
    ],
    ids=["another host", "expired"],
)
def test_a_worker_reports_a_wrong_graph_certificate_at_startup(
    authority: Authority, redis_server: RedisServer, make: Callable[[Authority], Certificate], why: str
) -> None:
    with tls_listener(make(authority)) as port:
        settings = WorkerSettings(
            redis_url=redis_server.url(), neo4j_uri=f"bolt+s://{HOST}:{port}", neo4j_password="secret-of-the-test",
            neo4j_ca_certs=str(authority.root),
        )  # fmt: skip
        with pytest.raises(LoadFailed) as caught:
            load(settings)
        received = log_problems(settings)
    assert caught.value.kind == "graph_unavailable"
    (problem,) = (problem for problem in received if f"NEO4J_URI={settings.neo4j_uri}" in problem)
    assert "certificate" in problem.lower() or "secure" in problem.lower()
    assert "secret-of-the-test" not in problem
