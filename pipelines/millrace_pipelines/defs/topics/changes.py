"""What changed since the sensor's last look at the topics, decided from its cursor and the newest look alone.

A topic is gone once two looks in a row lack it, so that a broker which once answers without its topics deletes nothing.
A topic whose offsets can't be read counts as present and unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from millrace.internal_topics import INTERNAL_TOPICS
from millrace_pipelines.defs.cursors import pack_cursor, unpack_cursor
from millrace_pipelines.defs.topics.offsets import Look, TopicOffsets

DIGEST_BYTES = 4  # one change in four billion goes unseen until the topic moves again


class Seen(NamedTuple):
    """What the cursor keeps: a digest of each topic's version, and the known topics that the last look lacked."""

    digests: Mapping[str, str]
    missing: frozenset[str]


class TopicChanges(NamedTuple):
    """The topics that are new, gone, or have moved, in the order of their names, and what the next look compares."""

    added: list[str]
    gone: list[str]
    moved: list[TopicOffsets]
    seen: Seen


def topic_changes(seen: Seen, look: Look, known: Iterable[str]) -> TopicChanges:
    """Returns what changed; `known` are the topics that were added and not removed since."""
    known = set(known)
    missing = known - (look.topics.keys() | look.failed.keys()) | known & INTERNAL_TOPICS
    gone = missing & seen.missing
    digests = {name: digest(topic) for name, topic in look.topics.items()}
    unseen = (missing - gone) | look.failed.keys()
    return TopicChanges(
        added=sorted(look.topics.keys() - known),
        gone=sorted(gone),
        moved=[topic for name, topic in sorted(look.topics.items()) if seen.digests.get(name) != digests[name]],
        seen=Seen(
            {name: old for name, old in seen.digests.items() if name in unseen} | digests, frozenset(missing - gone)
        ),
    )


def digest(topic: TopicOffsets) -> str:
    """Returns a short text that changes with the topic's version."""
    return blake2b(topic.version.encode(), digest_size=DIGEST_BYTES).hexdigest()


def cursor_of(seen: Seen) -> str:
    """Returns the cursor that `seen_by` reads."""
    return pack_cursor({"digests": dict(sorted(seen.digests.items())), "missing": [*sorted(seen.missing)]})


def seen_by(cursor: str | None) -> Seen:
    """Returns what a cursor keeps: nothing where it has another form, after which each topic is reported once more."""
    match unpack_cursor(cursor):
        case {"digests": dict(digests), "missing": list(missing)}:
            known = {name: old for name, old in digests.items() if isinstance(old, str)}
            return Seen(known, frozenset(name for name in missing if isinstance(name, str)))
        case _:
            return Seen({}, frozenset())
