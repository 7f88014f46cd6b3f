"""The descriptor of a deletion vector, by which another engine says which rows of a data file are deleted.

    storageType    pathOrInlineDv
    u              [prefix]<UUID in Z85>     [prefix/]deletion_vector_<UUID>.bin, below the table's folder
    p              a whole address           that file
    i              the bytes in Z85          no file

Source: the Delta transaction log protocol, "Deletion Vectors".
"""

from __future__ import annotations

import base64
import string
import uuid
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

Descriptor: TypeAlias = Mapping[str, Any]
"""As an action has it, without the fields that are null."""

RELATIVE = "u"
ABSOLUTE = "p"
ENCODED_UUID = 20
Z85 = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
BASE85 = string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
TO_BASE85 = str.maketrans(Z85, BASE85)


def descriptor_of(action: Mapping[str, Any]) -> Descriptor | None:
    """Returns the descriptor in an add or remove action; None where the file has no vector."""
    fields = action.get("deletionVector") or {}
    return {name: value for name, value in fields.items() if value is not None} or None


def vector_file(descriptor: Descriptor, location: str) -> str | None:
    """Returns the name of the file below a table's location that has a vector; None where it is in no such file."""
    place = str(descriptor["pathOrInlineDv"])
    if descriptor["storageType"] == RELATIVE:
        prefix, encoded = place[:-ENCODED_UUID], place[-ENCODED_UUID:]
        name = f"deletion_vector_{uuid.UUID(bytes=base64.b85decode(encoded.translate(TO_BASE85)))}.bin"
        return f"{prefix}/{name}" if prefix else name
    if descriptor["storageType"] == ABSOLUTE:
        return unquote(place).partition(f"{location}/")[2] or None
    return None
