"""Settings of a reader, and their sources: environment, URLs, durations. Nothing here connects."""
