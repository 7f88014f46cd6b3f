"""What a worker process is given, and what it reports: JSON objects.

Its one argument is an `Assignment`. To the stdout that it was started with it writes a `Line` for each commit, with
`version` and `ranges`, and one as its last, with `is_complete` or with `error` and `retriable`.
"""

from __future__ import annotations

from typing import TypedDict


class OptionFields(TypedDict):
    """The fields of `RunOptions`."""

    zookeeper: str
    bootstrap: str
    output: str
    group: str | None
    max_seconds: float
    accept_lost_offsets: bool
    session_timeout_ms: int
    client_config: str | None


class Assignment(TypedDict):
    """What a worker is to do."""

    job: str
    options: OptionFields
    targets: dict[str, int]


class Line(TypedDict, total=False):
    """One line of JSON by which a worker reports a commit, its end or an error."""

    version: int
    ranges: list[tuple[int, int, int, int]]
    is_complete: bool
    error: str
    retriable: bool
