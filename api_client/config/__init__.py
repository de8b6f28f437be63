"""Settings of a reader, and what they are read from. Nothing here connects."""
