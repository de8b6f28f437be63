"""Settings of a reader, those that it shares with workers (`SharedSettings`), and both sides' settings of the broker.

Their sources too: environment, URLs, durations. A worker's policy is in `refresher.settings`. Nothing here connects.
"""
