"""What an error about a name that the cluster doesn't have ends with: the name that was probably meant.

The arguments and options whose values are completed while a user types name things of the cluster. What completes them
knows the things that there are: it is asked for all of them, and the one that is most like the typed name is proposed.
A property is compared with those that the cluster describes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from millrace.errors import BrokerError, ErrorCode, InvalidConfigError, MillraceError
from millrace.suggestions import did_you_mean

if TYPE_CHECKING:
    from typer._click.core import Context, Parameter

UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND)
_command: ContextVar[Context | None] = ContextVar("_command", default=None)


@contextmanager
def suggesting_properties(given: Iterable[str], known: Callable[[], Collection[str]]) -> Iterator[None]:
    """Adds the property that was probably meant to the error about an unknown one of those that are given."""
    try:
        yield
    except (InvalidConfigError, BrokerError) as error:
        words = _words(str(error))
        if typed := [one for one in given if one in words]:
            names = known()
            hints = "".join(did_you_mean(one, names) for one in typed if one not in names)
            error.args = (str(error) + hints,)
        raise


@contextmanager
def suggesting(context: Context) -> Iterator[None]:
    """Adds what was probably meant to the error that a command raises; the context is the command's."""
    token = _command.set(context)
    try:
        yield
    except MillraceError as error:
        error.args = (told(error),)
        raise
    finally:
        _command.reset(token)


def told(error: MillraceError) -> str:
    """Returns an error's sentence, with what was probably meant by an unknown name in it that was typed."""
    text, context = str(error), _command.get()
    if context is None or getattr(error, "broker_code", error.code) not in UNKNOWN:
        return text
    words = _words(text)
    hints = ""
    for parameter, name in _typed(context):
        if name in words and name not in (known := _known(parameter, context)):
            hints += did_you_mean(name, known)
    return text.removesuffix(".") + hints if hints else text


def _words(text: str) -> list[str]:
    return re.split(r"[\s:;,'=]+", text)


def _typed(context: Context) -> Iterator[tuple[Parameter, str]]:
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        for name in value if isinstance(value, list | tuple) else (value,):
            if isinstance(name, str):
                yield parameter, name


def _known(parameter: Parameter, context: Context) -> list[str]:
    return [item.value for item in parameter.shell_complete(context, "")]
