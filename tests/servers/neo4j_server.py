"""Neo4j for tests: the release under test, started cheaply."""

from __future__ import annotations

import os
from typing import ClassVar, Final

from refresher.embedded.maven import LTS, NEWEST, Neo4jRelease
from refresher.embedded.neo4j_server import Neo4jWithApoc

SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java's options for a graph that few tests use: its start costs 40 % less, but under load it is slower."""

SHORT_LIVED_ENV: Final = {"JAVA_TOOL_OPTIONS": " ".join(SHORT_LIVED)}
"""The same for a graph that a command starts."""


def neo4j_under_test() -> Neo4jRelease:
    """Return the release that tests use: the LTS if ``TEST_NEO4J`` is 5.26, else the newest."""
    return LTS if os.environ.get("TEST_NEO4J") == "5.26" else NEWEST


class Neo4jWithoutTriggers(Neo4jWithApoc):
    """Neo4j with APOC as it is delivered: its triggers are not enabled."""

    triggers_enabled: ClassVar[bool] = False
