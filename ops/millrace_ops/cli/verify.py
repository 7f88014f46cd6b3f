"""`millrace verify`: checks the files of logs byte by byte, while no broker has them open.

With `--bootstrap` it reads the partitions of a running cluster instead (`millrace.client.log_check`).
It checks every batch's length, CRC and offsets, and that index entries mean what they say; it also finds transactions
that nothing will ever end (`txns.hanging`). A finding names the file and the byte. With `--repair` it drops what lies
between an invalid message and the next valid one, and nothing else; the original file stays beside it as `.damaged`.
What is damaged or missing is then a gap that was repaired, and no damage to a start (`recovery.repair`).
"""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from millrace_ops.cli.dump import ReadOnlyFileSystem
from millrace_ops.cli.options import FS, ClientConfig, ClusterAccess, Json, complete_topic
from millrace_ops.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millrace.client.log_check import PartitionReport
    from millrace_broker.storage.recovery.offline_logs import SegmentRepair, SegmentReport
    from millrace_broker.storage.reports import LogFinding


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DIR_OR_FILE_OR_TOPIC...",
            help="Data folders, partitions' folders, files NNN.log; with --bootstrap topics, or all if none is named.",
            autocompletion=complete_topic,
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT[,...]", help="Brokers of a running cluster, whose topics are read."),
    ] = None,
    client_config: ClientConfig = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Drop what is damaged, keeping a copy of each file that is changed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the files of logs that no broker has open, or a running cluster; exit status 1 with findings.

    With --repair the exit status is 0 if all is well afterwards. With --bootstrap every partition is read from its
    start to its end; transactions that hang are found in files only (`kafka-transactions find-hanging` asks a cluster).
    """
    if bootstrap is not None:
        if repair:
            raise typer.BadParameter("not together with --bootstrap: only files are repaired", param_hint="--repair")
        _verify_broker(bootstrap, client_config, names or (), as_json=as_json)
    if not names:
        raise typer.BadParameter("name files or folders, or give --bootstrap", param_hint="DIR_OR_FILE")
    _verify_files([Path(one) for one in names], repair=repair, as_json=as_json)


def _verify_broker(bootstrap: str, client_config: str | None, topics: Sequence[str], *, as_json: bool) -> NoReturn:
    from millrace.client.log_check import check_topics

    with ClusterAccess(bootstrap, client_config).open() as cluster:
        reports = list(check_topics(cluster, topics))
    if as_json:
        for report in reports:
            print_json(asdict(report))
    else:
        _show_partitions(reports)
    raise typer.Exit(int(any(report.findings for report in reports)))


def _verify_files(paths: Sequence[Path], *, repair: bool, as_json: bool) -> NoReturn:
    from millrace_broker.storage.recovery.offline_logs import check_logs, find_segments, locked
    from millrace_broker.storage.recovery.offline_logs import repair as repair_logs
    from millrace_broker.txns.hanging import find_hanging

    fs = ReadOnlyFileSystem()
    logs = [log for path in paths for log in find_segments(fs, str(path))]
    repairs = repair_logs(FS, logs) if repair else []
    with locked(fs, logs):
        reports = _with_findings(check_logs(fs, logs), find_hanging(fs, logs))
    _show_json(repairs, reports) if as_json else _show(repairs, reports)
    raise typer.Exit(int(any(report.findings for report in reports)))


def _with_findings(reports: Sequence[SegmentReport], further: Sequence[LogFinding]) -> list[SegmentReport]:
    """Adds further findings to the reports of the segment files in which they were found."""
    return [
        replace(
            report, findings=(*report.findings, *(one for one in further if one.file == os.path.abspath(report.file)))
        )
        for report in reports
    ]


def _show_json(repairs: Sequence[SegmentRepair], reports: Sequence[SegmentReport]) -> None:
    for repaired in repairs:
        lost = [one._asdict() for one in repaired.lost]
        print_json({"repaired": {**asdict(repaired), "lost": lost}})
    for report in reports:
        print_json({**asdict(report), "damage": [one._asdict() for one in report.damage]})


def _show(repairs: Sequence[SegmentRepair], reports: Sequence[SegmentReport]) -> None:
    for repaired in repairs:
        kept = (
            f"; as it was: {repaired.original}" if repaired.original else "; its indexes are rebuilt at the next start"
        )
        lost = "".join(f"; given up: offsets {one.start_offset} to {one.end_offset - 1}" for one in repaired.lost)
        print(f"{repaired.file}: {repaired.dropped_bytes} bytes dropped{lost}{kept}")
    rows = [(one.file, one.batches, one.size_bytes, one.next_offset, len(one.findings)) for one in reports]
    print_table(("segment", "batches", "bytes", "next offset", "findings"), rows)
    for finding in (finding for report in reports for finding in report.findings):
        print(f"{finding.file}: byte {finding.position}: {finding.reason}")


def _show_partitions(reports: Sequence[PartitionReport]) -> None:
    rows = [
        (one.topic, one.partition, one.batches, one.size_bytes, one.next_offset, len(one.findings)) for one in reports
    ]
    print_table(("topic", "partition", "batches", "bytes", "next offset", "findings"), rows)
    for report in reports:
        for finding in report.findings:
            print(f"{report.topic}-{report.partition}: offset {finding.offset}: {finding.reason}")
