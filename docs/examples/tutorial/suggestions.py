"""What the worker loads: whom a person may want to meet."""

from refresher import query


@query("suggestions_for", ttl="5s", grace="1h")
def suggestions_for(tx, person_id: int) -> list[str]:
    """Return the names of friends' friends."""
    return tx.run(
        """
        MATCH (p:Person {id: $id})-[:KNOWS]-()-[:KNOWS]-(other:Person)
        WHERE other <> p AND NOT (p)-[:KNOWS]-(other)
        RETURN DISTINCT other.name AS name ORDER BY name
        """,
        id=person_id,
    ).value()
