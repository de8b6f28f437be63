"""`refresher doctor`: the table of checks in `registry`, the checks by subject beside it. Nothing here repairs."""
