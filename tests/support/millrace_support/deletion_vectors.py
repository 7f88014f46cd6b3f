"""Deletion vectors as another engine writes them: inline, or in a file that the log names by its UUID or its address.

rows ──► Roaring bitmap array ──► Z85 in the log, or  version │ size │ bytes │ CRC-32  in deletion_vector_<UUID>.bin
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.delta.table import Table

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
ROARING_ARRAY = 1681511377
NO_RUNS = 12346
FEATURES = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"]}  # fmt: skip

Vector = Mapping[str, Any]


def inline_vector(rows: Sequence[int]) -> Vector:
    """Returns the descriptor of a vector that is in the log itself."""
    content = _content(rows)
    return {"storageType": "i", "pathOrInlineDv": _z85(content), "sizeInBytes": len(content), "cardinality": len(rows)}


def stored_vector(location: str, rows: Sequence[int], *, prefix: str = "", by_address: bool = False) -> Vector:
    """Writes a vector into a file of its own, and returns its descriptor."""
    content, number = _content(rows), uuid.uuid4()
    path = Path(location, prefix, f"deletion_vector_{number}.bin")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\1" + struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content)))
    place = path.as_uri() if by_address else prefix + _z85(number.bytes)
    return {"storageType": "p" if by_address else "u", "pathOrInlineDv": place, "offset": 1,
            "sizeInBytes": len(content), "cardinality": len(rows)}  # fmt: skip


def delete_rows(location: str, name: str, vector: Vector, *, time_ms: int = 1) -> None:
    """Deletes rows of a file as another engine does: the file is removed, and added with a vector."""
    table = DeltaTable(location)
    [*_, add] = [
        action["add"]
        for commit in sorted(Path(location, "_delta_log").glob("*.json"))
        for action in map(json.loads, commit.read_text().splitlines())
        if action.get("add", {}).get("path") == name
    ]
    before = add.pop("deletionVector", None)
    remove = {"path": name, "deletionTimestamp": time_ms, "dataChange": True, "deletionVector": before}
    actions = [{"protocol": FEATURES}, {"remove": remove}, {"add": add | {"deletionVector": vector}}]
    path = Path(location, "_delta_log", f"{table.version() + 1:020d}.json")
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def largest_file(location: str) -> str:
    """Returns the name of a table's largest file."""
    table = Table.load(location, OsFileSystem())
    return max(table.file_names(), key=lambda name: Path(location, name).stat().st_size)


def _content(rows: Sequence[int]) -> bytes:
    """Returns an array of one Roaring bitmap, which has one container of single values."""
    values = b"".join(struct.pack("<H", row) for row in rows)
    bitmap = struct.pack("<IIHHI", NO_RUNS, 1, 0, len(rows) - 1, 16) + values
    return struct.pack("<IQI", ROARING_ARRAY, 1, 0) + bitmap


def _z85(content: bytes) -> str:
    padded = content + bytes(-len(content) % 4)
    words = struct.unpack(f">{len(padded) // 4}I", padded)
    return "".join(Z85[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))
