"""The scripts by what they are steps of; one that is in no list is a step of the lease record."""

from __future__ import annotations

from typing import Final

from api_client.transport.scripts import SCRIPTS

TAG_STEPS: Final = tuple(name for name in SCRIPTS if name.startswith("tag_"))
OTHERS: Final = frozenset({"read_payload", "register", "release_share", "renew_share", "take_share", "versions"})
STEPS: Final = tuple(name for name in SCRIPTS if name not in {*TAG_STEPS, *OTHERS})
