"""Options of Flower for this deployment: ``celery -A refresher flower --conf=deploy/flowerconfig.py``.

Flower's safe defaults (loopback, read-only, no access without a password: docs/how-to/flower.md) hold without
this file, and nothing has to stand in it. An option set here, such as ``url_prefix = "flower"``, goes before the
environment (FLOWER_…); secrets stay there.
"""
