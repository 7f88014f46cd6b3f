"""What a program may do to a table; its features or properties may forbid some of it."""

from __future__ import annotations

from enum import StrEnum


class Access(StrEnum):
    """The kinds of access to a table, some of which a feature or property may forbid."""

    READ = "read"
    APPEND = "append"
    REARRANGE = "rearrange"
    REMOVE = "remove"


REFUSED_TEXTS = {
    Access.READ: "it can't be used",
    Access.APPEND: "no rows can be added",
    Access.REARRANGE: "it can't be compacted, checkpointed or vacuumed",
    Access.REMOVE: "no rows can be removed or replaced",
}
