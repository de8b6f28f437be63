"""Scenarios on real processes, at a size that one machine holds."""
