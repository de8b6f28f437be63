"""The apparatus of measurements: servers, entries, processes, statistics. Nothing here knows a workload."""
