"""The protocol that a log demands, read without delta-rs: it refuses to open a table with a feature that it lacks.

The newest `protocol` action counts. It is looked for in the commits, newest first, then in the newest checkpoint, which
stands for those that were removed from the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from millrace_pipelines.warehouse.delta.protocol import Access, TableFacts, refusal
from millrace_pipelines.warehouse.delta.store import LOG_DIRECTORY, TableFiles

Action = Mapping[str, Any]


def refused_by_log(store: TableFiles) -> str | None:
    """Returns why a table that can't be opened is refused; None where its protocol is not the reason."""
    try:
        action = next(_protocol_actions(store), None)
    except (OSError, ValueError, pa.ArrowException):
        return None
    refused = None if action is None else refusal(_facts(action), Access.READ)
    return None if refused is None else refused.message(store.location, Access.READ)


def _facts(action: Action) -> TableFacts:
    return TableFacts(
        reader_version=int(action["minReaderVersion"]),
        writer_version=int(action["minWriterVersion"]),
        reader_features=frozenset(action.get("readerFeatures") or ()),
        writer_features=frozenset(action.get("writerFeatures") or ()),
        properties={},
        schema="",
    )


def _protocol_actions(store: TableFiles) -> Iterator[Action]:
    """Yields the protocol actions of the log, the newest first."""
    listed = store.filesystem.get_file_info(pafs.FileSelector(store.path(LOG_DIRECTORY)))
    names = sorted((info.base_name for info in listed if info.base_name[:20].isdecimal()), reverse=True)
    for name in names:
        path = store.path(f"{LOG_DIRECTORY}/{name}")
        if name.endswith(".parquet"):
            rows = pq.read_table(path, columns=["protocol"], filesystem=store.filesystem).column("protocol")
            yield from (row for row in rows.to_pylist() if row)
        elif name[20:] == ".json":
            with store.filesystem.open_input_file(path) as file:
                actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
            yield from (action["protocol"] for action in actions if "protocol" in action)
