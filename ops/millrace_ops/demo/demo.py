"""The demo: a year of flights from a stock producer into a warehouse table, loaded by Dagster, each figure checked.

    produce January to September ─ load ─ produce October to December ─ load only that ─ delays, retention, recovery

Source, engine and store are of this machine unless `Elsewhere` has other addresses; nothing else of the demo differs
then. Each load is a run of Dagster, launched as a click in its UI launches it; one whose process is lost goes on in the
run that Dagster starts in its place. So is the last step, in one run: a consumer
group brings the carriers' delays up to date (`carrier_delays`), and the broker is maintained. At the end Spark SQL
counts the rows, and every count and every delay is compared with the source file.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from millrace.clock import Clock
from millrace.errors import PlatformError, SetupError
from millrace.fs import FileSystem
from millrace.security.client_config import properties_of_file
from millrace.security.sasl.jaas import parse_jaas
from millrace_ops.demo.carrier_delays import Delays, added_up, by_carrier, delays_by_carrier, each_alone
from millrace_ops.demo.count import count_by_carrier
from millrace_ops.demo.flights import FlightEvent, events, months, read_flights
from millrace_ops.demo.report import Figure, Outcome, carrier_counts
from millrace_ops.supervisor.dagster_api import DagsterApi, RunState
from millrace_ops.supervisor.hardening import producer_of
from millrace_ops.supervisor.platform import LOCAL, Platform, PlatformOptions
from millrace_pipelines.project import write_definitions
from millrace_pipelines.warehouse.ledger.ledger import read_ledger

ADMIN_TIMEOUT_S = 15.0
FLUSH_TIMEOUT_S = 60.0
LOG_WARNINGS = 4  # as syslog counts
EVENTS_PER_STEP = 1_000


SAME_NAMES = ("security.protocol", "sasl.mechanism")


def librdkafka_security(client_config: str) -> dict[str, str]:
    """Returns the security settings in a file of client properties, under librdkafka's names."""
    found = properties_of_file(client_config)
    named: dict[str, str] = {name: found[name] for name in SAME_NAMES if name in found}
    if (trusted := found.get("ssl.truststore.location")) is not None:
        named["ssl.ca.location"] = trusted
    if (jaas := found.get("sasl.jaas.config")) is not None:
        login = parse_jaas(jaas, "sasl.jaas.config").options
        named |= {"sasl.username": login["username"], "sasl.password": login["password"]}
    return named


def create_topic(client: Mapping[str, str], topic: str, partitions: int, config: dict[str, str]) -> None:
    """Creates a topic; `client` has the brokers' addresses and security, as librdkafka takes them.

    Raises PlatformError where the broker refuses the topic.
    """
    new_topic = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    admin = AdminClient({**client, "log_level": LOG_WARNINGS})
    try:
        admin.create_topics([new_topic])[topic].result(ADMIN_TIMEOUT_S)
    except KafkaException as error:
        raise PlatformError(f"the broker did not create the topic {topic}: {error}") from error


def produce(
    client: Mapping[str, str], topic: str, events: Iterable[FlightEvent], on_step: Callable[[int], None]
) -> int:
    """Sends all events, waits until each is acknowledged, and returns how many there were.

    Args:
        client: The addresses of brokers and how they are secured, as librdkafka has it.
        topic: The topic that they go to; the client's own partitioner places them by key.
        events: The events, in the order in which they are sent.
        on_step: Called with the number of events sent since its last call.

    Raises:
        PlatformError: An event was not acknowledged.
    """
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    options = {"log_level": LOG_WARNINGS, "acks": "all", "compression.type": "zstd", "linger.ms": 20}
    producer = Producer({**client, **options})
    sent = 0
    for event in events:
        _send(producer, topic, event, on_delivery)
        sent += 1
        if sent % EVENTS_PER_STEP == 0:
            on_step(EVENTS_PER_STEP)
    unacknowledged = producer.flush(FLUSH_TIMEOUT_S)
    on_step(sent % EVENTS_PER_STEP)
    if unacknowledged or failures:
        raise PlatformError(f"{unacknowledged + len(failures)} events were not acknowledged: {failures[:3]}")
    return sent


def _send(
    producer: Producer, topic: str, event: FlightEvent, on_delivery: Callable[[KafkaError | None, Message], None]
) -> None:
    while True:
        try:
            producer.produce(topic, event.value, event.key, timestamp=event.timestamp_ms, on_delivery=on_delivery)
        except BufferError:  # the client's queue is full: let it deliver, then try again
            producer.poll(1.0)
        else:
            producer.poll(0)
            return


BAR_WIDTH = 24


class Step:
    """The line that shows one step of the demo while it is under way."""

    def __init__(self, progress: Progress, name: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total, note="")

    def advance(self, count: int) -> None:
        """Moves the bar on by `count`."""
        self._progress.advance(self._task, count)

    def note(self, text: str) -> None:
        """Shows a text on the line, in place of the one before."""
        self._progress.update(self._task, note=text)

    def finish(self) -> None:
        """Fills the bar and ends the spinner."""
        total = self._progress.tasks[self._task].total or 1
        self._progress.update(self._task, total=total, completed=total)


class Steps:
    """The demo's steps so far as lines, with the seconds that each took."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = {}
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=30)),
            _Seconds(table_column=Column(no_wrap=True, justify="right", min_width=7)),
            _Doing(table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
            console=console,
            expand=True,
        )

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keeps the lines up to date while the context lasts."""
        with self._progress:
            yield

    @contextmanager
    def step(self, name: str, total: int | None = None) -> Iterator[Step]:
        """Shows a step while the context lasts; `total` is how many things it does, where that is known."""
        step = Step(self._progress, name, total)
        started_ms = self._clock.monotonic_ms()
        yield step
        self.seconds[name] = (self._clock.monotonic_ms() - started_ms) / 1000
        step.finish()


class _Doing(ProgressColumn):
    """A column with a bar and a count for a step with a total above 1, else with the text that `Step.note` set."""

    def render(self, task: Task) -> RenderableType:
        if task.total is None or task.total == 1:
            return Text(task.fields["note"], "dim")
        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(task.total, task.completed, width=BAR_WIDTH), f"{int(task.completed):,}")
        return row


class _Seconds(ProgressColumn):
    def render(self, task: Task) -> Text:
        elapsed = task.finished_time if task.finished else task.elapsed
        return Text(f"{elapsed or 0.0:.1f} s", "progress.elapsed")


TOPIC = "flights"
PRODUCER = producer_of(TOPIC)
PARTITIONS = 4
TABLE_ASSET = "millrace/table/flights"
DELAYS_ASSET = "carrier_delays"
RETENTION, RECOVERY_CHECK = "millrace/retention", "millrace/recovery_check"
DEFINITIONS = ("cluster/defs.yaml", "cluster/flights.json", "carrier_delays.py")  # below defs/ of this package
RUN_TIMEOUT_S = 600.0
POLL_INTERVAL_S = 0.25
MARKER = ".millrace-demo"

# The flights are of 2013: a policy by age would delete them at once.
TOPIC_CONFIG = {"retention.ms": "-1", "segment.bytes": str(8 << 20)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The addresses of what the demo is to use in place of its own.

    Attributes:
        bootstrap: `HOST:PORT` of a Kafka; None for brokers of the demo's own.
        client_config: The file with the client properties of that Kafka.
        warehouse: A folder, or s3://bucket/path, for the tables; its options are those of the environment.
        master: Spark's master.
        spark: Settings of Spark.
    """

    bootstrap: str | None = None
    client_config: str | None = None
    warehouse: str | None = None
    master: str = LOCAL
    spark: Mapping[str, str] = field(default_factory=dict)

    def declared(self, text: str) -> str:
        """Returns the demo's declarations with the settings of Spark in them."""
        return text.rstrip() + f"\n  spark: {json.dumps(dict(self.spark))}\n" if self.spark else text


HERE = Elsewhere()


def run_demo(
    directory: str,
    console: Console,
    fs: FileSystem,
    clock: Clock,
    *,
    brokers: int = 1,
    secure: bool = False,
    elsewhere: Elsewhere = HERE,
) -> Outcome:
    """Runs the whole demo in a fresh directory and returns what it found.

    Raises:
        SetupError: The directory holds something else than an earlier demo; Java or a package is missing.
        PlatformError: A process ended, or a run of Dagster failed.
    """
    make_fresh_directory(directory)
    steps = Steps(console, clock)
    options = PlatformOptions(
        directory=directory,
        brokers=brokers,
        listen="127.0.0.1:0",
        admin="127.0.0.1:0",
        dagster_port=0,
        secure=secure,
        users=(PRODUCER,) if secure else (),
        bootstrap=elsewhere.bootstrap,
        client_config=elsewhere.client_config,
        warehouse=elsewhere.warehouse,
        master=elsewhere.master,
    )
    with Platform(options, fs, clock) as platform, steps.shown():
        outcome = _Demo(platform, steps, clock, elsewhere).run()
        with steps.step("stop everything"):
            platform.stop()
    return outcome


def make_fresh_directory(directory: str) -> None:
    """Empties the folder of an earlier demo, or creates one.

    Raises SetupError for a folder that holds anything else.
    """
    marker = os.path.join(directory, MARKER)
    if os.path.isdir(directory) and os.listdir(directory) and not os.path.exists(marker):
        raise SetupError(f"{directory} is not empty and not of an earlier demo; choose another with --dir")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    with open(marker, "w", encoding="utf-8"):
        pass


class _Demo:
    """One demo on a platform: its steps, and the figures found so far."""

    def __init__(self, platform: Platform, steps: Steps, clock: Clock, elsewhere: Elsewhere) -> None:
        self._platform = platform
        self._steps = steps
        self._clock = clock
        self._elsewhere = elsewhere
        self._figures: list[Figure] = []
        self._delays: Mapping[str, Delays] = {}

    def run(self) -> Outcome:
        with self._steps.step("read the flights of 2013"):
            flights = read_flights()
            parts = (("January to September", months(flights, 1, 9)), ("October to December", months(flights, 10, 12)))
        self._start()
        for name, part in parts:
            self._produce(name, part)
            self._load(name, part.num_rows)
        self._maintain(flights)
        return self._count(flights)

    def _start(self) -> None:
        with self._steps.step("create the topic" if self._elsewhere.bootstrap else "start ZooKeeper and the broker"):
            self._platform.start_broker()
            create_topic(self._client(), TOPIC, PARTITIONS, TOPIC_CONFIG)
            for name in DEFINITIONS:
                text = files("millrace_ops.demo").joinpath("defs", name).read_text(encoding="utf-8")
                named = self._elsewhere.declared(text) if name.endswith(".yaml") else text
                write_definitions(self._platform.directory, name, named)
        with self._steps.step("start Dagster") as step:
            self._platform.start_dagster()
            step.note(f"UI at {self._platform.addresses.dagster}")

    def _produce(self, name: str, flights: pa.Table) -> None:
        with self._steps.step(f"produce {name}", flights.num_rows) as step:

            def on_step(count: int) -> None:
                step.advance(count)
                self._platform.supervisor.check()

            produce(self._client(), TOPIC, events(flights), on_step)

    def _client(self) -> dict[str, str]:
        """Returns librdkafka's settings to reach the brokers, on a hardened platform as the user `producer`."""
        file = self._platform.client_config(PRODUCER.name)
        security = {} if file is None else librdkafka_security(file)
        return {"bootstrap.servers": self._platform.addresses.broker, **security}

    def _load(self, name: str, rows: int) -> None:
        with self._steps.step(f"load {name}") as step:
            run = self._run_in_dagster([TABLE_ASSET], step)
            loaded = run.figures[TABLE_ASSET]
            step.note(f"{int(loaded['rows']):,} rows")
        self._figures.append(Figure(f"rows loaded, {name}", rows, int(loaded["rows"])))
        self._figures.append(Figure(f"complete after {name}", "yes", _yes(run.checks.get("completeness"))))

    def _maintain(self, flights: pa.Table) -> None:
        with self._steps.step("delays, retention, recovery check") as step:
            run = self._run_in_dagster([DELAYS_ASSET, RETENTION, RECOVERY_CHECK], step)
            step.note(_maintained(run.figures))
        self._delays = delays_by_carrier(os.path.join(self._platform.warehouse, DELAYS_ASSET))
        expected = by_carrier(added_up(each_alone(flights)))
        self._figures += [
            Figure("flights in the delays", flights.num_rows, sum(one.flights for one in self._delays.values())),
            Figure("carriers with the source's delays", len(expected), len(expected.items() & self._delays.items())),
            Figure("recovery check without findings", "yes", _yes(run.checks.get("no_findings"))),
        ]

    def _count(self, flights: pa.Table) -> Outcome:
        table = os.path.join(self._platform.warehouse, TOPIC)
        with self._steps.step("count rows with Spark SQL"):
            elsewhere = self._elsewhere
            counted = count_by_carrier(table, self._platform.path("logs"), elsewhere.master, elsewhere.spark)
        expected = carrier_counts(flights)
        ledger = read_ledger(table)
        loaded = sum(entry.next_offset - entry.start_offset for entry in ledger.partitions.values())
        self._figures += [
            Figure("rows in the table", flights.num_rows, sum(counted.values())),
            Figure("offsets in the ledger", flights.num_rows, loaded),
            Figure("carriers with the source's count", len(expected), len(expected.items() & counted.items())),
        ]
        return Outcome(table, counted, ledger, self._delays, self._figures, self._steps.seconds)

    def _run_in_dagster(self, assets: list[str], step: Step) -> RunState:
        """Launches a run and follows it to its end; raises PlatformError where it does not succeed in time.

        Where the run's process is lost, Dagster starts another run, which is followed in its place.
        """
        api = DagsterApi(self._platform.addresses.dagster or "")
        deadline_ms = self._clock.monotonic_ms() + int(RUN_TIMEOUT_S * 1000)
        run = api.run(api.launch(assets))
        while not run.is_settled:
            step.note(run.message or run.status.lower())
            self._pause(deadline_ms, f"the run {run.run_id} is still {run.status.lower()}")
            run = api.run(run.retried_as or run.run_id)
        if run.status != "SUCCESS":
            raise PlatformError(f"the run of {', '.join(assets)} ended with {run.status.lower()}: {run.failure}")
        return run

    def _pause(self, deadline_ms: int, problem: str) -> None:
        self._platform.supervisor.check()
        if self._clock.monotonic_ms() > deadline_ms:
            raise PlatformError(f"{problem} after {RUN_TIMEOUT_S:g} s")
        time.sleep(POLL_INTERVAL_S)


def _maintained(figures: Mapping[str, Mapping[str, float]]) -> str:
    """Returns what maintenance says that it did; brokers that are not Millrace's look after their logs themselves."""
    verified = figures[RECOVERY_CHECK]
    if RETENTION not in figures:
        return f"{verified['batches']:,.0f} batches verified"
    return f"{figures[RETENTION]['segments deleted']:.0f} segments deleted, {verified['records']:,.0f} records verified"


def _yes(verdict: bool | None) -> str:
    return "not checked" if verdict is None else "yes" if verdict else "no"
