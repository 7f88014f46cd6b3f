"""Waits for what the controller makes of a request (`millrace_broker.controller`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from millrace.error_codes import error_sentence
from millrace.errors import ErrorCode, MillraceError, NotControllerError
from millrace.turns import later
from millrace.wire.encoder import Parts
from millrace_broker.controller.active_controller import ActiveController
from millrace_broker.handlers.api import Guard, Reply, Request, Services

logger = logging.getLogger(__name__)

T = TypeVar("T")


def ask_controller(
    services: Services,
    request: Request,
    guard: Guard,
    ask: Callable[[ActiveController], T],
    write: Callable[[T | ErrorCode], Parts],
) -> Reply:
    """Returns the response that `write` makes of what the controller says, or of the error."""
    return later(_written(services, ask, write)) if guard.permits(services, request.session) else write(guard.error)


async def _written(
    services: Services, ask: Callable[[ActiveController], T], write: Callable[[T | ErrorCode], Parts]
) -> Parts:
    outcome = await asked(services, ask)
    return write(outcome)


async def asked(services: Services, ask: Callable[[ActiveController], T]) -> T | ErrorCode:
    """Returns the result, or the error: NOT_CONTROLLER where this broker is not the controller."""
    if services.controller is None:
        return ErrorCode.NOT_CONTROLLER
    try:
        return await asyncio.wrap_future(services.controller.asked(ask))
    except NotControllerError as error:
        return error.code
    except MillraceError as error:
        logger.warning("the controller has failed: %s", error)
        return error.code


def said(code: ErrorCode) -> str | None:
    """Returns the message that goes with an error code; none where there is no error."""
    return None if code is ErrorCode.NONE else error_sentence(code)
