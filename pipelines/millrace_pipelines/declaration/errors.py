"""What is wrong with a `defs.yaml`, in a line for each field: `FILE:LINE: FIELD: what is expected`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

VALUE_ERROR = "Value error, "


def declaration_errors(error: BaseException) -> list[str]:
    """Returns a line for each field that a component's file has wrong; none where the error is of another kind.

    Dagster raises pydantic's error below its own, with the place in the file behind the name of each field.
    """
    for cause in _causes(error):
        if isinstance(cause, ValidationError):
            return [_line(str(each["loc"][0]) if each["loc"] else "", each["msg"]) for each in cause.errors()]
    return []


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _line(place: str, message: str) -> str:
    field, _, position = place.partition(" at ")
    words = message.removeprefix(VALUE_ERROR)
    return ": ".join(part for part in (position, field.removeprefix("attributes."), words) if part)
