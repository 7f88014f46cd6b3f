r"""Formats each event as one JSON object on a line, for programs that gather logs.

    {"time": "2026-11-26T09:30:00.123Z", "level": "WARNING", "logger": "millrace_broker.net.server",
     "message": "refusing 127.0.0.1:40044: …", "exception": "Traceback …"}

`exception` is there where there is one. Names that clients give stay inside the strings, whatever is in them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from logging import LogRecord
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from millrace_broker.log_lines.text import cut

FIELDS = ("asctime", "levelname", "name", "message")
NAMES = {"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "exception"}


class JsonLineFormatter(JsonFormatter):
    """Formats a log record as one line with a JSON object."""

    def __init__(self) -> None:
        super().__init__(FIELDS, rename_fields=NAMES)

    def formatTime(self, record: LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802  # logging's names
        """Returns the record's time in UTC, to the millisecond (RFC 3339)."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return time.replace("+00:00", "Z")

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Returns the fields of the JSON object, with a very long message cut."""
        return super().process_log_record(log_data | {"message": cut(log_data["message"])})
