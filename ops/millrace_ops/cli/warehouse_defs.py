"""`millrace warehouse load --defs FILE`: all tables that a file declares, in one process and one Spark session."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import typer

from millrace.errors import MillraceError, SetupError
from millrace.tracing import tracing_of
from millrace_ops.cli.options import CLOCK
from millrace_ops.cli.output import print_json
from millrace_ops.cli.warehouse_continuous import stop_on_signals
from millrace_ops.cli.warehouse_preview import show_load
from millrace_pipelines.declaration.loads import DeclaredLoads, declared_loads, spark_of
from millrace_pipelines.spark.session import SharedSession
from millrace_pipelines.warehouse.load.load import SERVICE
from millrace_pipelines.warehouse.load.metrics import LoadAttempts
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.load.together import Outcome, load_together
from millrace_pipelines.warehouse.load.turns import FailedTurn, load_in_turns
from millrace_pipelines.warehouse.stores.options import declare_store_options

MASTER = "spark.master"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefsOptions:
    """What the command line says beside the file.

    Attributes:
        path: The file.
        bootstrap: The address for a cluster that the file gives none.
        client_config: The security properties for a cluster that the file gives none.
        master: Spark's master, in place of the file's.
        spark_settings: Settings of the session, in place of the file's.
        for_all: Options of every load, by their names in `LoadOptions`; None leaves what the file says.
        as_json: JSON instead of text.
    """

    path: str
    bootstrap: str
    client_config: str | None
    master: str | None
    spark_settings: Mapping[str, str]
    for_all: Mapping[str, Any] = field(default_factory=dict)
    as_json: bool = False


class _Defs:
    """The declared loads with the options of the command line, and the session that they share."""

    def __init__(self, given: DefsOptions) -> None:
        self._given = given
        self._loads = declared_loads(given.path, given.bootstrap, given.client_config)
        self._metrics: dict[str, str] = {}
        for one in self._loads:
            declare_store_options(one.declaration.stores)

    def session(self) -> SharedSession:
        """Returns the session, which starts where the first load needs it."""
        settings = spark_of(self._given.path, self._loads) | dict(self._given.spark_settings)
        return SharedSession(f"loads of {self._given.path}", self._given.master or settings.get(MASTER), settings)

    def tables(self) -> list[LoadOptions]:
        """Returns the options of all declared loads; raises ClientError where the topics can't be asked for."""
        return [one for loads in self._loads for one in self._of(loads)]

    def _of(self, loads: DeclaredLoads) -> Iterator[LoadOptions]:
        given = {name: value for name, value in self._given.for_all.items() if value is not None}
        metrics, cluster = loads.declaration.load_metrics, loads.declaration.cluster
        for options in loads.options():
            if metrics:
                self._metrics[options.table] = os.path.join(metrics, f"{cluster}.table.{options.topic}.prom")
            yield replace(options, **given)

    def note(self, options: LoadOptions, outcome: Outcome) -> None:
        """Counts a load, or its failure, in the metrics file of its table, where the file asks for one."""
        path = self._metrics.get(options.table)
        if path is None:
            return
        try:
            error = type(outcome).__name__ if isinstance(outcome, Exception) else None
            LoadAttempts(options.table, options.topic).note(path, error)
        except SetupError as error:
            print(f"load_metrics: {error}", file=sys.stderr, flush=True)


def run_defs(given: DefsOptions) -> None:
    """Loads each declared table once, and prints a line for each; exit status 1 where a load failed."""
    defs = _Defs(given)
    tables = defs.tables()
    found: list[tuple[LoadOptions, Outcome]] = []
    with tracing_of(os.environ, SERVICE) as tracing, defs.session() as session:
        for options, outcome in load_together(tables, session, tracing=tracing):
            defs.note(options, outcome)
            found.append((options, outcome))
            if not given.as_json:
                _print_outcome(options, outcome)
    if given.as_json:
        print_json([_as_json(*one) for one in found])
    failed = [options.topic for options, outcome in found if isinstance(outcome, Exception)]
    if failed:
        print(f"{len(failed)} of {len(found)} tables failed: {', '.join(sorted(failed))}", file=sys.stderr)
        raise typer.Exit(1)
    if not given.as_json:
        print(f"{len(found)} tables")


def preview_defs(given: DefsOptions) -> None:
    """Prints what the load of each declared table would do; exit status 1 where one would fail at once."""
    failed = False
    for options in _Defs(given).tables():
        try:
            show_load(options, as_json=given.as_json)
        except MillraceError as error:
            failed = True
            print(f"{options.topic}: {error}", file=sys.stderr, flush=True)
    raise typer.Exit(int(failed))


def run_defs_continuously(given: DefsOptions, interval_s: float) -> None:
    """Loads each declared table at its turn, until SIGTERM or SIGINT; a second signal ends the process at once."""
    defs, stop = _Defs(given), threading.Event()
    tables = defs.tables()
    with tracing_of(os.environ, SERVICE) as tracing, defs.session() as session:
        session.get()
        stop_on_signals(stop.set)
        print(f"loading {len(tables)} tables of {given.path} until SIGTERM", file=sys.stderr, flush=True)

        def load(some: Sequence[LoadOptions]) -> Iterable[tuple[LoadOptions, Outcome]]:
            for options, outcome in load_together(some, session, tracing=tracing):
                defs.note(options, outcome)
                yield options, outcome

        load_in_turns(defs.tables, load, stop, _TurnLines(given.as_json), CLOCK, interval_s=interval_s)


class _TurnLines:
    """Writes a line to stdout for each load that committed something; failures go to stderr."""

    def __init__(self, as_json: bool) -> None:
        self._print: Callable[[LoadReport], None] = _print_json_line if as_json else _print_report

    def loaded(self, report: LoadReport) -> None:
        """Writes the table's topic with the load's version, rows, dead letters, time and lag; nothing for no commit."""
        if report.version is not None:
            self._print(report)
            sys.stdout.flush()

    def failed(self, failed: FailedTurn) -> None:
        """Writes the topic and the error, with the number of the attempt and the pause before the next one."""
        told = f"attempt {failed.attempt} failed, again in {failed.pause_ms / 1000:.0f} s"
        print(f"{failed.options.topic}: {told}: {failed.error}", file=sys.stderr, flush=True)

    def not_asked(self, error: MillraceError) -> None:
        """Writes why it is not known whether tables have come or gone."""
        print(f"the topics could not be asked for, the tables stay as they are: {error}", file=sys.stderr, flush=True)


def _print_json_line(report: LoadReport) -> None:
    print_json(asdict(report))


def _print_outcome(options: LoadOptions, outcome: Outcome) -> None:
    if isinstance(outcome, Exception):
        print(f"{options.topic}: {_sentence(outcome)}", file=sys.stderr, flush=True)
    else:
        _print_report(outcome)


def _print_report(report: LoadReport) -> None:
    if report.version is None:
        print(f"{report.topic}: nothing new")
        return
    print(
        f"{report.topic}: version {report.version}, {report.rows:,} rows, {report.dead_letters:,} dead letters, "
        f"{report.seconds:.2f} s, lag {sum(report.lag.values()):,}"
    )
    for lost in report.skipped:
        offsets = f"offsets {lost.from_offset}-{lost.until_offset - 1}"
        print(f"{report.topic}: partition {lost.partition}: {offsets} are lost: {lost.reason}")
    if report.group_error is not None:
        print(f"{report.topic}: the offsets of group {report.group} could not be committed: {report.group_error}")
    if report.register_error is not None:
        print(f"{report.topic}: the table is loaded, and not entered in a catalog: {report.register_error}")


def _as_json(options: LoadOptions, outcome: Outcome) -> dict[str, object]:
    if isinstance(outcome, Exception):
        failed = {"error": type(outcome).__name__, "sentence": _sentence(outcome)}
        return {"topic": options.topic, "table": options.table, **failed}
    return asdict(outcome)


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, MillraceError) else f"{type(error).__name__}: {error}"
