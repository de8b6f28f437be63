"""Values that Neo4j's driver makes of a server's replies, and that have no public constructor."""

from __future__ import annotations

from neo4j.exceptions import Neo4jError
from neo4j.graph import Graph, Node, Path
from neo4j.time import Date


def server_error(code: str, message: str = "as the server said") -> Neo4jError:
    """Return the driver's error for a server's code, such as TransientError.Transaction.DeadlockDetected."""
    return Neo4jError._hydrate_neo4j(code=f"Neo.{code}", message=message)  # noqa: SLF001


def friends_path() -> Path:
    """Return a path from Ann to Bob, whom she knows."""
    graph = Graph()
    ann = Node(graph, "4:x:1", 1, ["Person", "Admin"], {"name": "Ann"})
    bob = Node(graph, "4:x:2", 2, [], {"name": "Bob"})
    knows = graph.relationship_type("KNOWS")(graph, "5:x:7", 7, {"since": Date(2020, 1, 2)})
    knows._start_node, knows._end_node = ann, bob  # noqa: SLF001
    return Path(ann, knows)
