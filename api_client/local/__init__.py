"""The in-process tier. Nothing here asks Redis for an entry."""
