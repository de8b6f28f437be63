"""Two loggers that show params where a worker logs at DEBUG."""

from __future__ import annotations

import logging
from typing import Final

# The driver's shows each query with its params; that of Celery's pools shows each message as it came.
_SHOW_PARAMS: Final = ("neo4j", "celery.pool")


def keep_params_out_of_logs() -> None:
    """Let those loggers begin at INFO. One whose level somebody has set is left as it is: that was meant."""
    for name in _SHOW_PARAMS:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
