"""What a commit says of itself, as JSON in the table's history.

Every lineage has a `kind`. That of a load has its ranges, with the offsets of each accounted for, and the offsets that
it goes on without (`lost`, and within the ranges `missing`). Where not all offsets of the ranges gave a row or a dead
letter, `recorded` keeps those that did (`delta.offset_sets`). `ledger` names the ledger that it moved. A reload is a
load of the earlier offsets that it added; those that it replaced move no ledger. A commit without a kind, of an older
version, is a load. Where a scheduler's run loaded, `run_id` names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from millrace_pipelines.warehouse.delta.lineage import Lineage, of_run
from millrace_pipelines.warehouse.ledger.ledger import Ledger
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport, ReloadReport

LOAD = "load"
UNTOLD = ("table", "version", "group", "group_error", "upserted")


def lineage_of_load(options: LoadOptions, ledger: Ledger, report: LoadReport, time_ms: int) -> dict[str, object]:
    """Returns all that a load's report says, where it comes from, and when."""
    facts = {name: fact for name, fact in asdict(report).items() if name not in UNTOLD}
    return (
        facts
        | of_run(options.run_id)
        | {
            "kind": LOAD,
            "time_ms": time_ms,
            "topic_id": ledger.topic_id,
            "ledger": ledger.name,
            "isolation": options.isolation,
            "reader": options.reader,
            "lost": [span._asdict() for span in report.lost],
            "missing": [span._asdict() for span in report.missing],
        }
    )


def lineage_of_reload(options: LoadOptions, load_id: str, report: ReloadReport, time_ms: int) -> dict[str, object]:
    """Returns which earlier offsets a reload added, as a load would say it, and what it replaced or left as it is."""
    return of_run(options.run_id) | {
        "kind": LOAD,
        "load_id": load_id,
        "time_ms": time_ms,
        "topic": options.topic,
        "isolation": options.isolation,
        "reader": options.reader,
        "ranges": [asdict(span) for span in report.backfilled],
        "lost": [],
        "replaced": [asdict(span) for span in report.replaced],
        "not_reloaded": [span._asdict() for span in report.lost],
    }


def loads_of(lineage: Iterable[Lineage], ledger: str) -> list[Lineage]:
    """Returns the loads that moved a ledger, oldest first."""
    return [one for one in lineage if one.get("kind", LOAD) == LOAD and one.get("ledger", ledger) == ledger]
