"""``python -m refresher.cli`` is ``refresher``."""

from refresher.cli import main

main()
