"""The parsing of names in Redis."""

from __future__ import annotations

import pytest

from api_client.protocol.keys import make_key
from refresher.ops.scan import KeyNames

KEY = make_key("cache", "friends_of", {"person_id": 42}, 3)
NAMES = KeyNames("cache")


def test_each_name_of_a_key_is_parsed() -> None:
    for name in (KEY.entry, KEY.record, KEY.channel):
        key = NAMES.key(name)
        assert key
        assert (key.query, key.version, key.digest, key.entry) == ("friends_of", 3, KEY.digest, KEY.entry)
    assert NAMES.query_of_entry(KEY.entry) == "friends_of"
    assert NAMES.query_of_entry(KEY.record) is None
    assert [NAMES.is_record(name) for name in (KEY.entry, KEY.record, KEY.channel)] == [False, True, False]


@pytest.mark.parametrize(
    "name",
    [
        "cache:dead1", "", "{", "cache:e1:{}", KEY.entry + "x", "x" + KEY.entry, KEY.entry.replace("cache", "other"),
        KEY.entry.replace(":e1:", ":e2:"), KEY.entry.replace(":3:", ":x:"), KEY.entry.replace(":3:", ":03:"),
        KEY.entry[:-2] + "}", KEY.entry[:-3] + "zz}", KEY.entry.replace("friends_of", "friends of"),
        KEY.entry.replace(":3:", f":{9**9**3}:"),
    ],
    ids=range(14),
)  # fmt: skip
def test_a_name_that_is_not_a_key_s_is_parsed_as_none(name: str) -> None:
    assert NAMES.key(name) is None
