"""`refresher doctor`: a table of checks in `checkup`, the checks by subject beside it. Nothing here repairs."""
