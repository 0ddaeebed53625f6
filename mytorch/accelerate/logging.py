"""Logging from several processes."""

import logging
import sys
from typing import Any

from ..distributed import environment


class MultiProcessAdapter(logging.LoggerAdapter):
    """A logger that writes on the main process only, or on all processes with `main_process_only=False`."""

    def log(  # type: ignore[override]
        self, level: int, msg: object, *args: Any, main_process_only: bool = True, **kwargs: Any
    ) -> None:
        """Logs a message like `logging.LoggerAdapter.log`.

        Args:
            level: level of the message.
            msg: message.
            *args: values for the message.
            main_process_only: if False, log on all processes.
            **kwargs: other arguments of `logging`.
        """
        if main_process_only and environment.place().rank != 0:
            return
        older = sys.version_info < (3, 11)  # these count an additional frame of logging
        kwargs.setdefault("stacklevel", 3 if older else 2)
        super().log(level, msg, *args, **kwargs)


def get_logger(name: str, log_level: str | int | None = None) -> MultiProcessAdapter:
    """Returns a logger for several processes.

    Args:
        name: name of the logger.
        log_level: level of the logger and of the root logger.
    """
    logger = logging.getLogger(name)
    if log_level is not None:
        level = log_level.upper() if isinstance(log_level, str) else log_level
        logger.setLevel(level)
        logger.root.setLevel(level)
    return MultiProcessAdapter(logger, {})
