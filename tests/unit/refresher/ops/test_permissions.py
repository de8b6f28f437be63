"""The part that Redis refused, parsed from its error."""

from __future__ import annotations

import pytest

from refresher.ops.permissions import refused_part

PARTS = {
    "run the 'set' command": "command",
    "run the 'set' command or its subcommand": "command",
    "run the 'client|list' command": "command",
    "access one of the keys used as arguments": "key",
    "access one of the channels used as arguments": "channel",
}


@pytest.mark.parametrize("who", ["this user", "User monkey", "User channels", "User keeper of keys"])
@pytest.mark.parametrize("what", PARTS)
def test_the_refused_part_is_recognised_whatever_the_user_s_name_is(who: str, what: str) -> None:
    assert refused_part(f"{who} has no permissions to {what}") == PARTS[what]
