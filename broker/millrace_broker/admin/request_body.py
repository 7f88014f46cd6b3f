"""What requests with a JSON body have in common: how the body is parsed, and how errors show what was given."""

from __future__ import annotations

import json

from millrace.errors import InvalidRequestError

MAX_SHOWN_CHARACTERS = 100


def parse_body(body: bytes) -> object:
    """Returns the value that a body has. Raises InvalidRequestError where it is no JSON."""
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is no JSON: {error}") from error
    return found


def shown(value: object) -> str:
    """Returns a given value as errors show it, cut where it is long."""
    return repr(value)[:MAX_SHOWN_CHARACTERS]
