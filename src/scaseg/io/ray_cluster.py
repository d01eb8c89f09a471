"""A connection to a Ray cluster, shared by all that runs on one."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scaseg.errors import UserError, WorkError, one_line


@contextmanager
def connected() -> Iterator[Any]:
    """Connect to Ray, quietly, and leave it as it was; gives the module.

    The cluster is the one of RAY_ADDRESS, or of this machine; where there is none, this machine
    becomes one. UserError: Ray is not installed. Errors of Ray within are WorkErrors.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent home
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its words about itself
    try:
        import ray
    except ImportError as error:
        raise UserError("--engine", "ray", "install it: pip install 'scaseg[ray]'") from error
    was_there = ray.is_initialized()
    try:
        if not was_there:
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
        yield ray
    except ConnectionError as error:
        remedy = "check RAY_ADDRESS, and RAY_AUTH_MODE=token where the cluster asks for a token"
        raise WorkError("--engine ray", first_line(error), remedy) from error
    except ray.exceptions.RayError as error:
        raise WorkError("--engine ray", first_line(error)) from error
    finally:
        if not was_there:
            ray.shutdown()


def first_line(error: Exception) -> str:
    """The first line of an error of Ray, which has pages."""
    detail = next((line for line in str(error).splitlines() if line.strip()), "")
    return one_line(detail) or type(error).__name__
