"""Positions as people paste them: partitions with an offset each, as pages, commands and messages write them.

    weather-0@1234              a topic's partition and an offset
    0@1234  0:1234  0·1,234     a partition and an offset
    weather:0:1234              the same with `:` throughout

Several may stand one after the other, with spaces, commas, semicolons or line ends between.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from millrace.config import MAX_INT, MAX_LONG, whole_number
from millrace.errors import InvalidRequestError

MAX_POSITIONS = 64
POSITION = re.compile(
    r"(?:(?P<topic>[A-Za-z0-9._-]+)[-:])?(?P<partition>[0-9]+)(?:[@:]|·)(?P<offset>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
)
TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][^@]*")  # its hours, minutes and seconds look like a position
BETWEEN = re.compile(r"[\s,;]+")


def parse_positions(text: str, topic: str) -> Mapping[int, int] | None:
    """Returns the offset of each partition in a pasted text; None where the text is no list of positions.

    Raises InvalidRequestError for positions of another topic, for two of one partition, and for too many.
    """
    found: dict[int, int] = {}
    at = 0
    text = text.strip()
    if TIME.fullmatch(text):
        return None
    while at < len(text):
        match = POSITION.match(text, at)
        if match is None:
            return None
        between = BETWEEN.match(text, match.end())
        if between is None and match.end() < len(text):
            return None
        at = len(text) if between is None else between.end()
        _add(found, match, topic)
    return found or None


def _add(found: dict[int, int], match: re.Match[str], topic: str) -> None:
    if match["topic"] not in (None, topic):
        raise InvalidRequestError(f"{match[0]} is a position of another topic than {topic}")
    partition = whole_number(match["partition"], MAX_INT)
    offset = whole_number(match["offset"].replace(",", ""), MAX_LONG)
    if partition is None or offset is None:
        raise InvalidRequestError(f"{match[0]} is no position: there is no such partition or offset")
    if found.get(partition, offset) != offset:
        raise InvalidRequestError(f"there are two positions of partition {partition}: {found[partition]} and {offset}")
    found[partition] = offset
    if len(found) > MAX_POSITIONS:
        raise InvalidRequestError(f"these are more than {MAX_POSITIONS} positions")
