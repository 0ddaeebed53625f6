"""Logging from several processes."""

import logging
import sys
from typing import Any

from ..distributed import environment


class MultiProcessAdapter(logging.LoggerAdapter):
    """A logger that speaks on the main process only, or on all with `main_process_only=False`."""

    def log(  # type: ignore[override]
        self, level: int, msg: object, *args: Any, main_process_only: bool = True, **kwargs: Any
    ) -> None:
        """As logging's; `stacklevel` counts from the caller."""
        if main_process_only and environment.place().rank != 0:
            return
        older = sys.version_info < (3, 11)  # they count a frame of logging's own, too
        kwargs.setdefault("stacklevel", 3 if older else 2)
        super().log(level, msg, *args, **kwargs)


def get_logger(name: str, log_level: str | int | None = None) -> MultiProcessAdapter:
    """The logger of a name, for several processes; log_level sets its level and the root's."""
    logger = logging.getLogger(name)
    if log_level is not None:
        level = log_level.upper() if isinstance(log_level, str) else log_level
        logger.setLevel(level)
        logger.root.setLevel(level)
    return MultiProcessAdapter(logger, {})
