"""The graph's change feed: its delay, its price to who writes, what it carries, and the loads that it spares."""
