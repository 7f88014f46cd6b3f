"""Lines of an audit that say which rows are there without a load, and which are not there though a load claims them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from millrace_pipelines.warehouse.completeness.claims import Stretch
from millrace_pipelines.warehouse.completeness.contents import Contents, Integers, shown
from millrace_pipelines.warehouse.completeness.tally import SHOWN, Met, strays
from millrace_pipelines.warehouse.ledger.ledger import Ledger


def stray_findings(stretches: Sequence[Stretch], rows: Contents, ledger: Ledger) -> Iterator[str]:
    """Yields which rows no load claims; dead letters may be ahead, where a load stopped between its two commits."""
    counts: Counter[str] = Counter()
    first: dict[str, list[int]] = {}
    for partition, offsets in strays(stretches, rows):
        for place, some in _placed(partition, offsets, ledger):
            counts[place] += len(some)
            first.setdefault(place, []).extend(int(offset) for offset in some[:SHOWN])
    for place, count in counts.items():
        yield f"{place}: {count} rows: {shown(first[place])}"


def _placed(partition: int, offsets: Integers, ledger: Ledger) -> Iterator[tuple[str, Integers]]:
    entry = ledger.partitions.get(partition)
    if entry is None:
        yield f"partition {partition}, which the ledger doesn't know", offsets
        return
    inside = (offsets >= entry.start_offset) & (offsets < entry.next_offset)
    outside = f"partition {partition}, outside the ledger's offsets {entry.start_offset}-{entry.next_offset - 1}"
    for place, some in ((outside, offsets[~inside]), (f"partition {partition}, of no load", offsets[inside])):
        if len(some):
            yield place, some


def miscount(met: Met) -> str:
    """Returns the line of a stretch that does not have as many rows and dead letters as the loads say."""
    stretch = met.stretch
    return (
        f"partition {stretch.partition}, offsets {stretch.from_offset}-{stretch.until_offset - 1}: "
        f"{met.records} rows and dead letters, the loads say {stretch.records}{not_there(met.missing_offsets)}"
    )


def not_there(offsets: Sequence[int]) -> str:
    """Returns the end of a line that names offsets which are not there; an empty text for none."""
    return f"; not there: {shown(offsets)}" if offsets else ""
