"""What a name in Redis is, told from the name alone."""

from __future__ import annotations

import pytest

from api_client.protocol.keys import make_key
from refresher.ops.scan import KeyNames

KEY = make_key("cache", "friends_of", {"person_id": 42}, 3)
NAMES = KeyNames("cache")


def test_a_key_is_told_by_each_of_its_names() -> None:
    for name in (KEY.entry, KEY.record, KEY.channel):
        told = NAMES.key(name)
        assert told
        assert (told.query, told.version, told.digest, told.entry) == ("friends_of", 3, KEY.digest, KEY.entry)
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
def test_a_name_that_is_no_keys_is_none(name: str) -> None:
    assert NAMES.key(name) is None
