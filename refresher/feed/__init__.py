"""The graph's change feed, by which writes to the graph invalidate exactly the values that depend on them.

A trigger in the graph notes each change within its transaction; a consumer turns the notes into tags, invalidates
these, and removes the notes:

    writer's transaction ──▶ trigger: a RefresherChange node, committed with the change or not at all
    consumer             ──▶ take ──▶ tags ──▶ invalidate ──▶ acknowledge: the node is deleted

A module of queries declares what to watch, and its queries declare the tags of their values:

    from refresher import query
    from refresher.feed import node_tags, relationship_tags, watch, watch_relationship

    watch("Person", key="id")
    watch_relationship("KNOWS")
"""

from refresher.feed.watches import node_tags, relationship_tags, watch, watch_relationship

__all__ = ["node_tags", "relationship_tags", "watch", "watch_relationship"]
