"""Compares what clients have read in the end with what they were told on the way: a sentence for each difference.

Values are compared, not counts. A read is a dict from (topic, partition) to a list of (offset, key, value).
"""

import json
from collections import Counter, defaultdict
from itertools import pairwise


def content_findings(sent, on_the_way, final, committed):
    """Yields what is wrong.

    Args:
        sent: Of each message that was sent, in the order of the keys.
        on_the_way: What one reader has read of `events` and `copies` during the faults.
        final: What is read of all topics in the end.
        committed: The group's offset in each partition of `events`.
    """
    yield from lost_or_foreign(sent, final)
    yield from stale(sent, final)
    yield from not_as_on_the_way(on_the_way, final)
    copies = [(place, key, json.loads(value)) for place, key, value in records(final, "copies")]
    yield from wrong_copies(copies, {place for place, _, _ in records(final, "events")}, committed)
    yield from wrong_newest(copies, final)


def records(read, topic):
    """Yields ((partition, offset), key, value) of a topic's records."""
    for (name, partition), found in read.items():
        if name == topic:
            for offset, key, value in found:
                yield (partition, offset), key, value


def lost_or_foreign(sent, final):
    """Yields a line for each event that is not where its sender was told, or that is there and should not."""
    found = {place: value for place, _, value in records(final, "events")}
    partitions = {one.value: one.partition for one in sent if one.topic == "events"}
    for one in sent:
        place = one.partition, one.offset
        if one.topic == "events" and one.offset is not None and found.get(place) != one.value:
            yield f"lost: {one} was acknowledged, and {found.get(place)} is there"
    for (partition, offset), value in found.items():
        if partitions.get(value) != partition:
            yield f"foreign: {value} at {offset} of events-{partition}, where nobody sent it"
    for value, count in Counter(found.values()).items():
        if count > 1:
            yield f"duplicate: {value} is there {count} times"


def stale(sent, final):
    """Yields a line for each key of `table` whose newest value is older than one that was acknowledged."""
    newest = {key: value for _, key, value in records(final, "table")}
    possible = defaultdict(lambda: [None])
    for one in sent:
        if one.topic == "table":
            if one.offset is not None:
                possible[one.key].clear()
            possible[one.key].append(one.value)
    for key, values in possible.items():
        if newest.get(key) not in values:
            yield f"stale: key {key} has {newest.get(key)}, and should have one of {values}"
    for key in newest.keys() - possible.keys():
        yield f"foreign: key {key} of table, which nobody sent"


def not_as_on_the_way(on_the_way, final):
    """Yields a line for each record that was read on the way and is not there, and for each one that was skipped."""
    for (topic, partition), read in on_the_way.items():
        offsets = [offset for offset, _, _ in read]
        if any(later <= earlier for earlier, later in pairwise(offsets)):
            yield f"read again: the offsets of {topic}-{partition} do not rise"
        expected = [one for one in final.get((topic, partition), ()) if offsets and one[0] <= offsets[-1]]
        for one in sorted({*read} - {*expected}):
            yield f"gone: {one} of {topic}-{partition} was read before"
        for one in sorted({*expected} - {*read}):
            yield f"skipped: {one} of {topic}-{partition} was not read before what follows it"


def wrong_copies(copies, events, committed):
    """Yields a line for each part of an aborted or torn transaction, and each event without its one copy."""
    transactions, sources = Counter(), Counter()
    for (partition, offset), _, copy in copies:
        transactions[copy["transaction"], copy["copies"]] += 1
        sources[tuple(copy["of"])] += 1
        if copy["doomed"]:
            yield f"aborted: {copy} is read at {offset} of copies-{partition}"
    for (transaction, size), count in transactions.items():
        if count != size:
            yield f"torn: transaction {transaction} has {count} of {size} copies"
    for source, count in sources.items():
        if count > 1 or source not in events:
            yield f"copied wrongly: event {source} has {count} copies, and is {'' if source in events else 'not '}there"
    for partition, offset in sorted(events):
        if (offset < committed.get(partition, 0)) != ((partition, offset) in sources):
            told = f"event {offset} of events-{partition} has {sources[partition, offset]} copies"
            yield f"offsets and copies differ: {told}, and the group's offset is {committed.get(partition)}"


def wrong_newest(copies, final):
    """Yields a line for each key of `latest` that does not have the newest copy."""
    expected = {key: copy for _, key, copy in sorted(copies, key=lambda one: one[2]["of"])}
    newest = {key: json.loads(value) for _, key, value in records(final, "latest")}
    for key in sorted(expected.keys() | newest.keys()):
        if expected.get(key) != newest.get(key):
            yield f"not the newest: key {key} of latest has {newest.get(key)}, and should have {expected.get(key)}"
