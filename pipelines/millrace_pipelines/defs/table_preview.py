"""A preview of a table: its newest rows in Markdown, read from its newest files alone.

The newest file is the one that was added last; its last row group is read. Values are shortened, bytes that are no
text are shown in hexadecimal digits, and what Markdown would take for markup is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa

from millrace_pipelines.warehouse.delta.python_rows import python_rows
from millrace_pipelines.warehouse.delta.rewrite import as_schema, file_schema, open_file
from millrace_pipelines.warehouse.delta.table import Table

ROWS = 10
FILES = 5
MAX_CHARACTERS = 40
MAX_ROW_GROUP_BYTES = 256 << 20
MARKUP = re.compile(r"([\\`*_\[\]<>|~&#!])")
ESCAPED = r"\\\1"


def preview(table: Table, rows: int = ROWS) -> str:
    """Returns the newest rows, newest first, as a table in Markdown, or words where none can be read."""
    try:
        shown = _newest_rows(table, rows)
    except (pa.ArrowException, OSError) as error:
        return f"The newest rows can't be read: {cell(error)}"
    return markdown_table(file_schema(table).names, [list(row.values()) for row in shown]) if shown else "no rows"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table in Markdown (GitHub's extension), whose cells show the values as short texts."""
    body = [[cell(value) for value in row] for row in rows]
    lines = [[cell(column) for column in columns], ["---"] * len(columns), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: object) -> str:
    """Returns a value as a short text that Markdown shows as it is, in one line."""
    if value is None:
        return ""
    text = _text(value) if isinstance(value, bytes) else str(value)
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return MARKUP.sub(ESCAPED, line if len(line) <= MAX_CHARACTERS else line[: MAX_CHARACTERS - 1] + "…")


def _text(value: bytes) -> str:
    """Returns bytes as the text that they are in UTF-8, or in hexadecimal digits."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def _newest_rows(table: Table, rows: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name in _newest_files(table)[:FILES]:
        found += reversed(python_rows(_last_rows(table, name, rows - len(found))))
        if len(found) >= rows:
            break
    return found


def _newest_files(table: Table) -> list[str]:
    """Returns the names of the files, newest first."""
    actions = table.add_actions().select(["path", "modification_time"]).to_pylist()
    newest = sorted(actions, key=lambda action: (action["modification_time"], action["path"]), reverse=True)
    return [unquote(str(action["path"])) for action in newest]


def _last_rows(table: Table, name: str, rows: int) -> pa.Table:
    """Reads the last rows of a file; none where its last row group is larger than Millrace writes them."""
    schema = file_schema(table)
    with open_file(table, name) as file:
        last = file.num_row_groups - 1
        if last < 0 or file.metadata.row_group(last).total_byte_size > MAX_ROW_GROUP_BYTES:
            return schema.empty_table()
        columns = [column for column in schema.names if column in file.schema_arrow.names]
        group = file.read_row_group(last, columns=columns, use_threads=False)
        first = file.metadata.num_rows - group.num_rows
    kept = table.kept_rows().get(name)
    if kept is not None:
        group = group.filter(pa.array(kept[first : first + group.num_rows]))
    return as_schema(group.slice(max(0, group.num_rows - rows)), schema)
