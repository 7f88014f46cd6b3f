"""The operations of a transaction in ZooKeeper, of which all are done or none, and what ZooKeeper answers.

`ZooKeeperSession.multi` does them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

ANY_VERSION = -1
FIRST_VERSION = 0


@dataclass(frozen=True, slots=True)
class Create:
    """An operation that makes a node, numbered if it is sequential; an ephemeral node ends with the session."""

    path: str
    data: bytes = b""
    sequential: bool = False
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """An operation that replaces a node's data, if the node has this `version`; ANY_VERSION fits every node."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """An operation that removes a node without children, if it has this `version`; ANY_VERSION fits every node."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """An operation that changes nothing, but fails the transaction unless the node's data was set `version` times."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


class Reason(Enum):
    """Why ZooKeeper refuses an operation."""

    BAD_VERSION = "the node's data has been set meanwhile"
    NODE_EXISTS = "the node exists"
    NO_NODE = "there is no such node"
    NOT_EMPTY = "the node has children"


@dataclass(frozen=True, slots=True)
class Refused:
    """The operation, by index and path, for which ZooKeeper refused a whole transaction, and the reason."""

    index: int
    path: str
    reason: Reason


class Written(NamedTuple):
    """The path of a node that an operation made (a sequential one's with its number) or set, and its new version."""

    path: str
    version: int
