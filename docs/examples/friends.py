"""What the web applications read: a query of the worker's by its name, and the type of its value."""

from __future__ import annotations

from dataclasses import dataclass

from api_client import CachedQuery


@dataclass
class Friend:
    """One row of the query."""

    name: str


friends_of = CachedQuery("friends_of", returns=list[Friend])
