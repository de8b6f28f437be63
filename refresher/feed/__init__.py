"""The graph's change feed: what is written to the graph invalidates exactly what depends on it.

A trigger in the graph notes each change in the transaction that makes it; a consumer turns the notes into tags,
invalidates them, and removes the notes:

    writer's transaction ──▶ trigger: a RefresherChange node, committed with the change or not at all
    consumer             ──▶ take ──▶ tags ──▶ invalidate ──▶ acknowledge: the node goes

A module of queries says what is watched, and its queries which tags their values have:

    from refresher import query
    from refresher.feed import node_tags, relationship_tags, watch, watch_relationship

    watch("Person", key="id")
    watch_relationship("KNOWS")
"""

from refresher.feed.watches import node_tags, relationship_tags, watch, watch_relationship

__all__ = ["node_tags", "relationship_tags", "watch", "watch_relationship"]
