"""Options of Flower for this deployment: ``celery -A refresher flower --conf=deploy/flowerconfig.py``.

What makes Flower safe here (loopback, to look at only, no open door without a password: docs/flower.md) holds without
this file, and nothing has to stand in it. An option set here, such as ``url_prefix = "flower"``, goes before the
environment (FLOWER_…); secrets stay there.
"""
