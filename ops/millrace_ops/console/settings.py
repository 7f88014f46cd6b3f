"""What the broker tells the console's process, as one line of JSON on its standard input."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings.

    Attributes:
        socket: The path of the Unix socket to serve at.
        bootstrap: `HOST:PORT` of the broker.
        client_config: The file of client properties; "" for a connection without security.
        has_login: Whether the broker's endpoint has a token, and so sessions that can be ended.
        may_change: Whether pages offer what changes something.
        warehouse: The folder or bucket of tables; "" for none.
        schema_registry: The address or folder of the schema registry; "" for none.
        log_format: The form of the log, `text` or `json`.
    """

    socket: str
    bootstrap: str
    client_config: str = ""
    has_login: bool = False
    may_change: bool = False
    warehouse: str = ""
    schema_registry: str = ""
    log_format: str = "text"

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """Returns the settings of a line. Raises TypeError for one that has other fields."""
        return cls(**json.loads(line))
