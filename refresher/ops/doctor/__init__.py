"""`refresher doctor`: the table of checks in `registry`, and the checks by subject. Nothing here repairs."""
