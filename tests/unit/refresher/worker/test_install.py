"""`install` adds the refresh task to an application's app, and leaves the application's tasks as they were."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from celery import Celery, current_app, signals
from celery.concurrency import get_implementation
from kombu import Queue

from api_client import ConfigurationError
from api_client.protocol.messages import TASK_NAME, RefreshItem
from refresher import WorkerSettings, install
from refresher.embedded import free_port
from refresher.ops.startup_checks import pool_problem, queue_problem
from refresher.worker.app import CONSUMER, celery_settings, make_app
from refresher.worker.lifecycle import LifecycleStep
from refresher.worker.tasks import resend

SETTINGS = WorkerSettings(broker_url="redis://other:6379/5", workers=7)
OURS = ["cache.refresh-miss", "cache.refresh"]
ITS_OWN = {
    "broker_url": "redis://own:6379/3",
    "result_backend": "redis://own:6379/4",
    "task_default_queue": "own",
    "task_serializer": "pickle",
    "accept_content": ["json", "pickle"],
    "task_time_limit": 7200,
    "worker_prefetch_multiplier": 4,
    "broker_transport_options": {"visibility_timeout": 99},
    "task_acks_late": False,
}


@pytest.fixture(autouse=True)
def _signals_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    for signal in (signals.worker_process_shutdown, signals.worker_shutdown):
        monkeypatch.setattr(signal, "receivers", list(signal.receivers or []))


@pytest.fixture
def app() -> Iterator[Celery]:
    with Celery("own", set_as_current=False) as made:
        made.conf.update(ITS_OWN)
        yield made


def consumed(app: Celery) -> list[str]:
    return list(app.amqp.queues.consume_from)


def test_install_refuses_what_is_not_a_celery_app_or_worker_settings(app: Celery) -> None:
    wrong: Any = 3
    with pytest.raises(ConfigurationError, match="expected the application's Celery app"):
        install(wrong)
    with pytest.raises(ConfigurationError, match=r"expected a WorkerSettings"):
        install(app, wrong)


def test_the_application_s_settings_stay_as_they_are(app: Celery) -> None:
    names = {*ITS_OWN, *celery_settings(SETTINGS)} - {"task_queues", "worker_consumer"}
    before = {name: app.conf[name] for name in names}
    install(app, SETTINGS)
    assert {name: app.conf[name] for name in names} == before
    assert before["broker_url"] == "redis://own:6379/3"


def test_the_application_s_tasks_keep_their_options_and_their_queue(app: Celery) -> None:
    @app.task(name="own.task")  # type: ignore[untyped-decorator, unused-ignore]
    def task() -> None: ...

    assert consumed(app) == ["own"]  # read before, so Celery keeps it
    install(app, SETTINGS)
    assert (task.acks_late, task.ignore_result, task.time_limit, task.serializer) == (False, False, 7200, "pickle")
    route = app.amqp.router.route({}, "own.task")
    assert route["queue"].name == "own"
    assert consumed(app) == ["own", *OURS]


def test_the_refresh_task_has_what_it_needs(app: Celery) -> None:
    install(app, SETTINGS)
    task: Any = app.tasks[TASK_NAME]
    assert (task.acks_late, task.reject_on_worker_lost, task.ignore_result, task.serializer) == (
        True,
        True,
        True,
        "json",
    )
    assert (task.soft_time_limit, task.time_limit) == (SETTINGS.soft_limit_seconds, SETTINGS.hard_limit_seconds)
    assert app.conf.worker_consumer == CONSUMER


@pytest.mark.parametrize("queues", [[Queue("a"), Queue("b")], {"a": {"exchange": "x"}, "b": {}}])
def test_the_queues_that_the_application_declares_are_kept(app: Celery, queues: Any) -> None:
    app.conf.task_queues = queues
    install(app, SETTINGS)
    assert consumed(app) == ["a", "b", *OURS]


def test_the_application_s_own_consumer_is_kept(app: Celery) -> None:
    app.conf.worker_consumer = "celery.worker.consumer.consumer:Consumer"
    install(app, SETTINGS)
    assert app.conf.worker_consumer == "celery.worker.consumer.consumer:Consumer"


def test_other_apps_of_the_process_do_not_get_the_task(app: Celery) -> None:
    install(app, SETTINGS)
    with Celery("another", set_as_current=False) as another:
        assert TASK_NAME not in another.tasks


def test_making_the_worker_s_app_changes_no_default_app() -> None:
    before = current_app.main
    make_app(SETTINGS).finalize()
    assert current_app.main == before


def test_a_resent_message_is_json_whatever_the_application_s_serializer_is() -> None:
    sent: list[dict[str, Any]] = []
    own: Any = SimpleNamespace(send_task=lambda name, **options: sent.append(options))
    resend(own, "cache.refresh", SETTINGS, [RefreshItem(query="q")], countdown=None)
    assert sent[0]["serializer"] == "json"


@pytest.mark.parametrize("named_by", ["environment", "settings"])
def test_tls_options_in_rabbitmq_s_url_are_passed_to_its_client(
    app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    (root := tmp_path / "root.pem").touch()
    url = f"amqps://user:secret@rabbit:5671//?heartbeat=7&ssl_ca_certs={root}"
    if named_by == "environment":
        monkeypatch.setenv("CELERY_BROKER_URL", url)
    else:
        app.conf.broker_url = url
    install(app, WorkerSettings(broker_url=url))
    # The last one is how Celery prepares RabbitMQ for its delays.
    for connection in (app.connection_for_read(), app.connection_for_write(), app.connection_for_write(url=url)):
        assert connection.ssl == {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": str(root), "server_hostname": None}
        assert (connection.hostname, connection.userid, connection.heartbeat) == ("rabbit", "user", 7)


@pytest.mark.parametrize("url", ["amqps://rabbit//", "amqp://rabbit//", "redis://own:6379/3", "rediss://own:6379/3"])
def test_tls_settings_for_every_other_url_stay_the_application_s(app: Celery, url: str) -> None:
    app.conf.update(broker_url=url, broker_use_ssl={"cert_reqs": ssl.CERT_OPTIONAL})
    install(app, SETTINGS)
    assert app.connection_for_write().ssl == {"cert_reqs": ssl.CERT_OPTIONAL}


SAME_BROKER = str(ITS_OWN["broker_url"])


def test_an_app_that_is_configured_after_install_is_reported_to_get_no_refresh(app: Celery) -> None:
    settings = WorkerSettings(broker_url=SAME_BROKER)
    install(app, settings)
    app.conf.task_queues = None
    vars(app.amqp).pop("queues", None)
    assert "neither cache.refresh-miss nor cache.refresh, and gets no refresh" in (queue_problem(app, settings) or "")


@pytest.mark.parametrize(("pool", "is_slow"), [("prefork", False), ("threads", False), ("gevent", True)])
def test_a_slow_pool_is_reported(pool: str, is_slow: bool) -> None:
    assert (f"the pool {pool} is slow" in (pool_problem(get_implementation(pool)) or "")) is is_slow


def test_a_missing_dependency_of_a_worker_is_named_with_its_extra() -> None:
    program = (
        "import sys; sys.modules['neo4j'] = None\nimport celery, refresher\nrefresher.install(celery.Celery('own'))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "there is no module neo4j: pip install 'refresher[worker]'" in ended.stderr


def test_a_worker_embedded_in_a_program_starts_like_one_of_celery_s_command(
    app: Celery, caplog: pytest.LogCaptureFixture
) -> None:
    install(app, msgspec.structs.replace(SETTINGS, health_port=free_port()))
    with caplog.at_level("INFO", "refresher"):
        worker = app.WorkController(app=app, pool_cls="solo", concurrency=1)
        [step] = [one for one in worker.steps if isinstance(one, LifecycleStep)]
        step.start(worker)
    signals.worker_shutdown.send(sender=worker)
    assert "/ready and /live" in caplog.text


@pytest.mark.parametrize(
    ("own", "readers", "is_same"),
    [
        ("redis://h:6379/1", "redis://u:c4nary@h/1", True),
        ("redis://localhost/1", "redis://127.0.0.1:6379/1", True),
        ("redis://u:c4nary@h/1", "redis://h/2", False),
        ("redis://h/1", "redis://other/1", False),
        ("redis://:a;b@h:1/0", "redis://:a;b@h:1/0", True),
        ("sentinel://b:26379;sentinel://a:26379", "redis+sentinel://a,c/m", True),
        ("sentinel://b:26379/1;sentinel://a:26379/1", "redis+sentinel://a,c/m/1", True),
        ("redis+sentinel://a,c/m/1", "redis+sentinel://a,c/m/0", False),
        ("redis+socket:///run/s?virtual_host=2", "unix:///run/s?db=2", True),
        ("unix:///run/s", "unix:///run/s?db=1", False),
        ("amqp://h//", "amqp://h:5672", True),
        ("amqp://h//;amqp://other//", "amqp://other//", True),
    ],
)
def test_a_broker_other_than_the_readers_is_reported_whatever_the_form_of_its_url_without_its_password(
    app: Celery, own: str, readers: str, is_same: bool
) -> None:
    settings = WorkerSettings(broker_url=readers)
    install(app, settings)
    app.conf.broker_url = own
    problem = queue_problem(app, settings)
    assert (problem is None) == is_same
    assert is_same or "refreshes arrive only if both are the same broker" in problem
    assert "c4nary" not in str(problem)


def test_a_worker_imports_the_feed_once_it_consumes() -> None:
    program = "import sys, refresher.worker.app; print('refresher.feed.run' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
