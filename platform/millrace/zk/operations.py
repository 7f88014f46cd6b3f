"""The operations of a transaction in ZooKeeper, of which all are done or none (`ZooKeeperSession.transact`)."""

from __future__ import annotations

from dataclasses import dataclass

ANY_VERSION = -1


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node; ZooKeeper adds a number to the name of a sequential one; an ephemeral one ends with the session."""

    path: str
    data: bytes = b""
    sequential: bool = False
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a node's data, if it has `version`; without one, whatever its version is."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children."""

    path: str


@dataclass(frozen=True, slots=True)
class Check:
    """Do nothing, and let the other operations be done only if a node's data has been set `version` times."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check
