"""`millrace mirror audit`: compares mirrored topics with their sources, record by record (`mirror.audit`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_ops.cli.mirror_options import MirrorAccess
from millrace_ops.cli.options import Json
from millrace_ops.cli.output import one_line, print_json, print_table

if TYPE_CHECKING:
    from millrace_pipelines.mirror.audit import MirroredTopic, Offsets, OnProgress, PartitionAudit

TOLD = 10  # differences of a partition


def audit(
    *,
    access: MirrorAccess,
    limit: Annotated[
        int, typer.Option(min=1, help="How many differences of a partition are told; the others are counted.")
    ] = TOLD,
    as_json: Json = False,
) -> None:
    """Compare mirrored topics with their sources record by record; exit status 1 with each difference on a line.

    What is still to be mirrored, or was deleted by retention or compaction on either side, is no difference.
    """
    reports: list[tuple[str, PartitionAudit]] = []
    with _progress() as on_progress:
        for source, report in _audits(access, on_progress):
            reports.append((source, report))
            print_json(_json(source, report, limit)) if as_json else _tell(source, report, limit)
    if not as_json:
        columns = ("topic", "partition", "way", "source offsets", "target offsets", "records", "to come", "differences")
        print_table(columns, [_row(source, report) for source, report in reports])
    raise typer.Exit(int(not all(report.is_equal for _, report in reports)))


def _audits(access: MirrorAccess, on_progress: OnProgress) -> Iterator[tuple[str, PartitionAudit]]:
    """Yields the name of a source, and what was found of a partition, as soon as that is known."""
    from millrace_pipelines.mirror.audit import MirrorAudit
    from millrace_pipelines.mirror.audited_topics import audited_topics

    settings = access.settings()
    with settings.target.cluster() as target:
        for source in settings.sources:
            with source.cluster() as at_source:
                topics = audited_topics(source, at_source, target, keep_names=settings.keep_names)
                for report in MirrorAudit(at_source, target, source.name, on_progress).audit(topics):
                    yield source.name, report


def _tell(source: str, report: PartitionAudit, limit: int) -> None:
    place = f"{source}/{report.topic.source}-{report.partition}"
    for one in report.differences[:limit]:
        print(one_line(f"{place}: {one}"))
    if (more := report.count - limit) > 0:
        print(f"{place}: {more} more differences")


def _row(source: str, report: PartitionAudit) -> tuple[object, ...]:
    return (
        f"{source}/{report.topic.source}",
        report.partition,
        _way(report),
        "{}-{}".format(*report.source),
        "{}-{}".format(*report.target),
        report.records,
        report.to_come,
        report.count,
    )


def _json(source: str, report: PartitionAudit, limit: int) -> Mapping[str, object]:
    told = [
        {"kind": one.kind, "source_offset": one.source_offset, "target_offset": one.target_offset, "count": one.count}
        | {"detail": one.detail}
        for one in report.differences[:limit]
    ]
    return {
        "source": source,
        "topic": report.topic.source,
        "target_topic": report.topic.target,
        "partition": report.partition,
        "way": _way(report),
        "source_offsets": report.source,
        "target_offsets": report.target,
        "records": report.records,
        "to_come": report.to_come,
        "differences": told,
        "more": max(report.count - limit, 0),
    }


def _way(report: PartitionAudit) -> str:
    return "followed" if report.topic.follows else "copied"


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """Makes the context in which a bar on stderr shows how far a partition was read, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, markup=False, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task("", total=None)

        def show(topic: MirroredTopic, partition: int, offset: int, of: Offsets) -> None:
            name = f"{topic.source}-{partition}"
            bars.update(bar, description=name, completed=offset - of.begin, total=of.end - of.begin)

        yield show
