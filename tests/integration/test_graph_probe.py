"""The probe of the graph: `doctor` and `health` query the configured database as the configured user."""

from __future__ import annotations

from contextlib import closing

import pytest
from typer.testing import CliRunner

from refresher.cli.commands import app
from refresher.embedded import ArcadeDbServer, free_port
from refresher.embedded.neo4j_server import Neo4jServer
from refresher.errors import LoadFailed
from refresher.graph import loader as graph_module
from refresher.graph.loader import Graph
from refresher.ops import health
from refresher.ops.health import Health
from refresher.ops.heartbeat import Heartbeat, Phase
from refresher.ops.startup_checks import graph_problem
from refresher.settings import WorkerSettings
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import MAX_WAIT_SECONDS

Server = ArcadeDbServer | Neo4jServer
CANARY = "c4nary-s3cret"


@pytest.fixture(autouse=True)
def patient_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no graph of a busy machine answer too late."""
    monkeypatch.setattr(health, "ANSWER_SECONDS", MAX_WAIT_SECONDS)
    monkeypatch.setattr(graph_module, "VERIFY_SECONDS", MAX_WAIT_SECONDS)


@pytest.fixture(params=["arcadedb", "neo4j_server"])
def server(request: pytest.FixtureRequest) -> Server:
    started = request.getfixturevalue(request.param)
    assert isinstance(started, ArcadeDbServer | Neo4jServer)
    return started


def environment(server: Server, **changes: str) -> dict[str, str]:
    return {
        "NEO4J_URI": server.bolt_uri,
        "NEO4J_USER": server.user,
        "NEO4J_PASSWORD": server.password,
        "NEO4J_DATABASE": server.database,
        **changes,
    }


def ready(settings: WorkerSettings) -> str:
    heartbeat = Heartbeat()
    heartbeat.phase = Phase.CONSUMING
    with closing(Health(settings, heartbeat)) as health:
        return str(health.ready().record()["checks"]["graph"])


def test_the_configured_database_and_user_are_named_when_they_answer(server: Server) -> None:
    environ = environment(server)
    settings = WorkerSettings.from_env(environ)
    assert graph_problem(settings) is None
    assert ready(settings) == "ok"
    shown = CliRunner().invoke(app, ["doctor"], env=environ).output
    assert f"graph: the database {server.database!r} is reachable for the user {server.user!r}" in shown


@pytest.mark.parametrize(
    "wrong", [{"NEO4J_DATABASE": "nosuchdb"}, {"NEO4J_USER": "nobody"}, {"NEO4J_PASSWORD": CANARY}], ids="+".join
)
def test_a_wrong_database_user_or_password_is_a_problem(server: Server, wrong: dict[str, str]) -> None:
    environ = environment(server, **wrong)
    settings = WorkerSettings.from_env(environ)
    problem = graph_problem(settings)
    assert problem is not None
    assert f"NEO4J_DATABASE={settings.neo4j_database}" in problem
    assert f"NEO4J_USER={settings.neo4j_user}" in problem
    assert ready(settings) == problem
    done = CliRunner().invoke(app, ["doctor"], env=environ)
    assert done.exit_code == 1
    assert f"PROBLEM  graph: {problem}" in done.output
    assert settings.neo4j_password not in problem + done.output


@pytest.mark.parametrize(("scheme", "named"), [("neo4j", "use bolt://"), ("neo4j+s", "use bolt+s://")])
def test_an_unreachable_graph_behind_a_router_names_the_scheme_without_one(scheme: str, named: str) -> None:
    environ = {"NEO4J_URI": f"{scheme}://127.0.0.1:{free_port()}", "NEO4J_PASSWORD": CANARY}
    problem = graph_problem(WorkerSettings.from_env(environ))
    assert problem is not None
    assert "(graph_unavailable): " in problem
    assert named in problem
    without_router = environ["NEO4J_URI"].replace("neo4j", "bolt")
    problem = graph_problem(WorkerSettings.from_env({**environ, "NEO4J_URI": without_router}))
    assert problem is not None
    assert "bolt://" not in problem.partition("): ")[2]


def test_a_missing_password_of_the_graph_is_named(server: Server) -> None:
    problem = graph_problem(WorkerSettings.from_env(environment(server, NEO4J_PASSWORD="")))
    assert problem is not None
    assert "; NEO4J_PASSWORD is not set; " in problem


def test_a_graph_that_falls_silent_during_the_query_fails_the_probe(
    arcadedb: ArcadeDbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultProxy.before(arcadedb.bolt_uri) as proxy:
        settings = WorkerSettings.from_env(environment(arcadedb, NEO4J_URI=proxy.url(arcadedb.bolt_uri)))
        with closing(Graph(settings)) as graph:
            graph.verify()
            monkeypatch.setattr(graph_module, "VERIFY_SECONDS", 0.5)
            proxy.hangs()
            with pytest.raises(LoadFailed, match=r"ServiceUnavailable|SessionExpired"):
                graph.verify()
