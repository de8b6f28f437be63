"""Handle of the web applications: the name of a worker's query, and the type of its value."""

from __future__ import annotations

from dataclasses import dataclass

from api_client import CachedQuery


@dataclass
class Friend:
    """One row of the query."""

    name: str


friends_of = CachedQuery("friends_of", returns=list[Friend])
