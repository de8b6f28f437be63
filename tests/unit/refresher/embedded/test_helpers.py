from __future__ import annotations

import socket

import pytest

from refresher import embedded
from refresher.embedded import EmbeddedServerError, ServerDidNotStart, ServerMissing
from refresher.embedded.arcadedb import quoted_argument
from refresher.embedded.ports import free_port, free_ports, port_is_free


def test_public_names_are_sorted_and_there() -> None:
    assert embedded.__all__ == sorted(embedded.__all__)
    assert all(hasattr(embedded, name) for name in embedded.__all__)


def test_free_ports_are_different_and_below_the_systems_own_range() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(15_000 <= port < 32_000 for port in ports)
    assert 15_000 <= free_port() < 32_000


def test_a_port_in_use_is_not_free() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        assert not port_is_free(holder.getsockname()[1])


@pytest.mark.parametrize(
    ("argument", "quoted"),
    [("-cp", '"-cp"'), ("a b", '"a b"'), ('say "x"', r'"say \"x\""'), ("back\\slash", r'"back\\slash"')],
)
def test_arguments_for_java_are_quoted_where_necessary(argument: str, quoted: str) -> None:
    assert quoted_argument(argument) == quoted


def test_errors_have_one_base_and_say_what_to_do() -> None:
    assert str(ServerMissing("no redis", "install it")) == "no redis: install it"
    assert str(ServerDidNotStart("Redis", "it ended")) == "Redis did not start: it ended; its log is empty"
    assert "last words" in str(ServerDidNotStart("Redis", "it ended", "last words"))
    for kind in (ServerMissing, ServerDidNotStart):
        assert issubclass(kind, EmbeddedServerError)
