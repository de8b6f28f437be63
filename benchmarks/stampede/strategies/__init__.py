"""The strategies that are compared: four classic ones, ours, and other caches' (`variants` lists them)."""
