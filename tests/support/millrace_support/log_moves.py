"""The last step of a log's move, on one thread."""

from __future__ import annotations

from millrace_broker.storage import Log, LogManager, TopicPartition


def finish_move(logs: LogManager, key: TopicPartition) -> Log:
    """Puts the copy of a log in its place and returns it, as `ReplicaManager.finish_move` does."""
    old = logs.logs()[key]
    moved = logs.moves.put_in_place(logs.moves.copies()[key])
    logs.moves.end(old, moved)
    old.abandon()
    return moved
