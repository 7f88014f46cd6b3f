"""What a commit says of itself, as JSON in the table's history.

Every lineage has a `kind`. That of a load has its ranges, with the offsets of each accounted for, and what it goes on
without (`lost`); `ledger` names the ledger whose offsets it moved. Commits from before kinds are loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from millrace_pipelines.warehouse.ledger.ledger import Ledger
from millrace_pipelines.warehouse.load.options import LoadOptions, LoadReport

LOAD = "load"
UNTOLD = ("table", "version", "group", "group_error", "upserted")


def lineage_of_load(options: LoadOptions, ledger: Ledger, report: LoadReport, time_ms: int) -> dict[str, Any]:
    """Of one load: all that its report says, where it comes from, and when."""
    facts = {name: fact for name, fact in asdict(report).items() if name not in UNTOLD}
    return facts | {
        "kind": LOAD,
        "time_ms": time_ms,
        "topic_id": ledger.topic_id,
        "ledger": ledger.name,
        "isolation": options.isolation,
        "reader": options.reader,
        "lost": [span._asdict() for span in report.lost],
    }


def loads_of(lineage: Iterable[Mapping[str, Any]], ledger: str) -> list[Mapping[str, Any]]:
    """The loads that moved a ledger, oldest first."""
    return [one for one in lineage if one.get("kind", LOAD) == LOAD and one.get("ledger", ledger) == ledger]
