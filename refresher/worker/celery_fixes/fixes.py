"""The changes to Celery, kombu, billiard and py-amqp: where, for which fault; and a check of the installed versions."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Final, NamedTuple

from packaging.requirements import Requirement

log: Final = logging.getLogger(__name__)

CHECKED: Final = tuple(
    map(Requirement, ("celery>=5.6,<5.8", "kombu>=5.6,<5.8", "billiard>=4.3.2,<4.4", "amqp>=5.3,<5.5"))
)
"""The versions with which the fixes have been checked; a worker logs it when it starts with others."""


class Fix(NamedTuple):
    """A change to a library: the code (module of this package, and a name in it), and what happens without it.

    ``upstream`` is its issue or pull request, or the report in docs/upstream that is to be sent; ``test`` fails without
    it. Each fault was seen with celery 5.7.0, kombu 5.7.0, billiard 4.3.2 and amqp 5.4.2.
    """

    where: str
    fault: str
    upstream: str
    test: str


_REPORTS: Final = "docs/upstream/"
_CELERY: Final = "https://github.com/celery/celery/"
_POISON: Final = "tests/acceptance/test_poison.py::test_"
_FAULTS: Final = "tests/acceptance/worker_faults/test_"
_OUTAGES: Final = "tests/acceptance/test_broker_outages.py::test_"
_UNIT: Final = "tests/unit/refresher/worker/"

FIXES: Final = (
    Fix(
        "carried:CarriedDeliveries",
        "messages are restored and acknowledged over the lost connection: the worker ends, or they come back late",
        f"{_REPORTS}celery-lost-connection.md",
        f"{_FAULTS}lost_connections.py::test_the_message_of_a_load_that_outlives_its_connection_is_acknowledged",
    ),
    Fix(
        "consumer:RefreshConsumer.on_connection_error_after_connected",
        "with RabbitMQ they are acknowledged over the lost connection too, and it is closed by two round trips",
        f"{_REPORTS}celery-lost-connection.md",
        f"{_FAULTS}broker.py::test_connections_to_the_broker_that_are_lost_under_load",
    ),
    Fix(
        "consumer:RefreshConsumer._survive_refusals",
        "a command that the broker rejects, since it is full for example, ends the worker",
        f"{_CELERY}issues/5716",
        f"{_FAULTS}broker.py::test_a_broker_without_memory_under_load",
    ),
    Fix(
        "consumer:RefreshConsumer.ensure_connected",
        "the pause between two attempts to connect grows to half a minute, and no setting bounds it",
        f"{_CELERY}issues/9340",
        f"{_OUTAGES}the_worker_consumes_again_soon_after_the_outage",
    ),
    Fix(
        "consumer:RefreshConsumer.event_dispatcher",
        "the heartbeat event is retried in the loop that has to notice that the broker has gone",
        f"{_CELERY}pull/4804",
        f"{_OUTAGES}the_worker_consumes_again_soon_after_the_outage",
    ),
    Fix(
        "message_guard:validate_message",
        "a malformed body or header ends the worker, or keeps it in a loop; `embed` names any task to run",
        f"{_CELERY}issues/7975",
        f"{_POISON}the_same_worker_goes_on_after_a_malformed_message",
    ),
    Fix(
        "consumer:RefreshConsumer._survive_unreadable",
        "an exception over another task's message ends the worker",
        f"{_CELERY}issues/7975",
        f"{_UNIT}celery_fixes/test_fixes.py::test_an_exception_over_a_message_ends_the_connection_alone",
    ),
    Fix(
        "envelopes:tolerate_unreadable_envelopes",
        "an envelope that can't be read costs the connection; a binding of a wrong type, a traceback each second",
        f"{_REPORTS}kombu-unreadable-envelopes.md",
        f"{_POISON}hundreds_of_pieces_of_rubbish_cost_a_worker_seconds_and_not_minutes",
    ),
    Fix(
        "app:remove_decompressors",
        "a compressed message is expanded before its content type is looked at: 0.6 MB take 2 GB",
        f"{_REPORTS}kombu-decompression.md",
        f"{_POISON}a_compressed_message_is_never_expanded",
    ),
    Fix(
        "consumer:RefreshConsumer.on_decode_error",
        "a message that can't be decoded is logged with its body",
        f"{_REPORTS}celery-log-content.md",
        f"{_POISON}the_same_worker_goes_on_after_a_malformed_message",
    ),
    Fix(
        "log_escaping:EscapingLogging",
        "a line break in a text of a message forges a record of the log",
        f"{_REPORTS}celery-log-content.md",
        f"{_POISON}a_message_of_remote_control_forges_no_line_of_the_log",
    ),
    Fix(
        "soft_limit:SoftTimeLimit",
        "a prefork pool that shuts down sends the signal of the soft time limit twice",
        f"{_REPORTS}celery-soft-limit-twice.md",
        f"{_UNIT}celery_fixes/test_soft_limit.py::test_a_refresh_is_interrupted_in_its_load_alone_and_once",
    ),
    Fix(
        "lost_runs:RefreshRequest",
        "nothing but the log reports what a lost process of the pool was doing, or that a shutdown is a cold one",
        f"{_CELERY}issues/1628",
        f"{_FAULTS}every_end_counts.py::test_loads_that_would_end_their_worker_are_given_up_though_nobody_reads",
    ),
    Fix(
        "app:translate_amqps_tls_options",
        "options of TLS in an `amqps://` URL are passed on to py-amqp, which does not know them",
        f"{_REPORTS}kombu-amqps-url.md",
        f"{_UNIT}test_install.py::test_options_of_tls_in_rabbitmq_s_url_are_told_to_its_client",
    ),
)


def warn_of_unchecked_versions() -> None:
    """Log which installed libraries are outside of `CHECKED`. The fixes are applied all the same.

    Without them a fault of the broker or a malformed message ends the worker: an unchecked fix is the smaller risk.
    """
    for requirement in CHECKED:
        installed = version(requirement.name)
        if not requirement.specifier.contains(installed, prereleases=True):
            log.warning(
                "the fixes of Celery and kombu have not been checked with %s %s, but with %s",
                requirement.name, installed, requirement.specifier,
            )  # fmt: skip
