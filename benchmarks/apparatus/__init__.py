"""The means of measuring: servers, entries, processes, races. Nothing here knows a workload."""
