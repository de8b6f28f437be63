"""Wrong usage of each command: refused before any request, with exit code 2 and the name of what is wrong."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from refresher.cli.commands import app

DEEP = "[" * 90_000
KEY_OR_TAGS = "give either QUERY with its params, --version and --replicas, or --tag"


@pytest.mark.parametrize(
    ("arguments", "stdin", "named"),
    [
        (["warm", "long_lived", "--from", "-"], '{"key": "a"}\n{"key":\n', "line 2 is not JSON"),
        (["warm", "long_lived", "--from", "-"], "[1]\n", "line 1 is not a JSON object"),
        (["warm", "long_lived", "--from", "-"], '{"1x": 2}\n', "line 1: "),
        (["warm", "long_lived", "--from", "-"], '{"key": "a\u2028b"}\r\n[1]\n', "line 2 is not a JSON object"),
        pytest.param(["warm", "long_lived", "--from", "-"], DEEP, "line 1 is not JSON", id="a deep line"),
        (["warm", "long_lived", "--from", "/does/not/exist"], "", "/does/not/exist"),
        (["warm", "long_lived", "key=a", "--from", "-"], "", "give either params or --from"),
        (["warm", "long lived"], "", "'long lived'"),
        (["warm", "long_lived", "--at-once", "0"], "", "--at-once"),
        (["warm", "long_lived", "--timeout", "soon"], "", "--timeout"),
        (["refresh", "long_lived", "key=a", "--wait", "-1"], "", "--wait"),
        (["refresh"], "", "QUERY"),
        (["invalidate", "long_lived", "key"], "", "NAME=VALUE"),
        (["invalidate", "long_lived", "--replicas", "-1"], "", "--replicas"),
        pytest.param(["invalidate", "long_lived", '{"key":' + DEEP], "", "not JSON: ", id="a deep object"),
        pytest.param(["invalidate", "long_lived", "key=" + DEEP], "", "larger than", id="a deep value"),
        (["get", "friends_of", "--max-age", "soon"], "", "--max-age"),
        (["get", "friends_of", "--timeout", "-1"], "", "--timeout"),
        (["get", "friends_of", "person"], "", "NAME=VALUE"),
        (["explain", "friends_of", "person"], "", "NAME=VALUE"),
        (["explain", "friends_of", "{x"], "", "not JSON: "),
        (["explain", "friends_of", "1x=2"], "", "invalid parameter name '1x'"),
        (["explain", "friends_of", "person_id=42", "person_id=43"], "", "'person_id' is given twice"),
        (["explain", "friends_of", '{"person_id": 42}', "person_id=42"], "", "'person_id' is given twice"),
        (["explain", "f", "--version", "0"], "", "--version"),
        (["explain"], "", "QUERY"),
        (["invalidate", "--tag", ""], "", "--tag: a tag of 0 bytes"),
        (["invalidate", "--tag", "x" * 201], "", "--tag: a tag of 201 bytes: expected at most 64 texts of 1 to 200"),
        (["invalidate"], "", KEY_OR_TAGS),
        (["invalidate", "tagged", "--tag", "all"], "", KEY_OR_TAGS),
        (["invalidate", "--tag", "all", "--version", "1"], "", KEY_OR_TAGS),
        (["invalidate", "--tag", "all", "--replicas", "1"], "", KEY_OR_TAGS),
        (["invalidate", "long_lived", "--bookmark", ""], "", "--bookmark"),
        (["invalidate", "--tag", "t", "--bookmark", "é"], "", "--bookmark"),
        (["invalidate", "long_lived", "--replicas", "1000000"], "", "--replicas"),
        (["status", "--port", "5556"], "", "give --web too"),
        (["status", "--once", "--address", "127.0.0.1"], "", "give --web too"),
        (["demo", "--persons", "1"], "", "'--persons'"),
        (["demo", "--seconds", "0"], "", "'--seconds'"),
        (["demo", "--readers", "0"], "", "'--readers'"),
        (["demo", "--bogus"], "", "--bogus"),
        (["demo", "--feed"], "", "the change feed needs APOC, which --graph-server neo4j brings"),
        (["dev", "m", "--neo4j-uri", "bolt://neo4j:secret@127.0.0.1:1"], "", "no password on the command line"),
    ],
)
def test_wrong_usage_names_what_is_wrong(arguments: list[str], stdin: str, named: str) -> None:
    done = CliRunner().invoke(app, arguments, input=stdin, env={"COLUMNS": "120"})
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2
    assert named in done.stderr


def test_health_without_a_port_names_the_missing_setting() -> None:
    done = CliRunner().invoke(app, ["health"], env={"CACHE_HEALTH_PORT": None})
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "error: CACHE_HEALTH_PORT is not set: set it to the worker's\n"
