"""``python -m benchmarks``."""

from benchmarks.commands import main

if __name__ == "__main__":  # spawned children import this module too
    main()
