"""Settings of readers, those shared with workers (`SharedSettings`), and the broker settings of both sides.

Also their sources: environment, URLs, durations. A worker's policy is in `refresher.settings`. Nothing here connects.
"""
