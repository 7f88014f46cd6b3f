"""docs/kafka-tutorial.md is played against a secured Apache Kafka: its files, its commands, and what they print.

What the page leaves to the reader is put into its place: the cluster's address and properties, and where tables lie.
`dagster dev` runs, on a free port, from where the page starts it to its end.
"""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from millrace.ports import free_port
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_support.pages import ROOT, blocks, commands
from millrace_support.secured_kafka import SecuredKafka
from millrace_support.waiting import until

PAGE = ROOT / "docs" / "kafka-tutorial.md"
FOLDERS = {"defs.yaml": "defs/shop", "orders.json": "defs/shop", "dagster.yaml": ".dagster"}
GIVEN = {"kafka.properties"}


@pytest.fixture(params=["3.9", "4.1"])
def kafka(request, tmp_path_factory):
    zookeeper = request.getfixturevalue("zookeeper").address + "/tutorial" if request.param == "3.9" else None
    with SecuredKafka(find_kafka(request.param), tmp_path_factory.mktemp("kafka"), zookeeper) as started:
        yield started


class Reader:
    """Plays the page in a folder; the cluster, the properties and the warehouse are those of the test."""

    def __init__(self, kafka, folder):
        self.folder = folder
        self.warehouse = folder / "lake"
        properties = kafka.file(kafka.passwords("SCRAM-SHA-512"))
        self._places = {
            "kafka-1.example.org:9093": kafka.address("PASSWORDS"),
            "/etc/millrace/kafka.properties": str(properties),
            "/srv/lake": str(self.warehouse),
            "3000": str(free_port()),
        }
        own = {name: value for name, value in os.environ.items() if not name.startswith(("MILLRACE_", "DAGSTER_"))}
        self._environment = {
            **own,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "MILLRACE_BOOTSTRAP": self.placed("kafka-1.example.org:9093"),
            "MILLRACE_CLIENT_CONFIG": str(properties),
        }
        self._produced = 0

    def placed(self, text):
        for there, here in self._places.items():
            text = text.replace(there, here)
        return text

    def save(self, name, text):
        folder = self.folder / FOLDERS.get(name, "")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(self.placed(text), encoding="utf-8")

    def run(self, command):
        done = subprocess.run(
            self.placed(command), shell=True, cwd=self.folder, env=self._environment, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        if command.startswith("millrace produce"):
            self._produced += len((self.folder / command.split()[-1]).read_text().splitlines())
        return done.stdout

    def stay(self, command):
        """Starts a command that the page leaves running; returns a function that ends it."""
        self._environment["DAGSTER_HOME"] = str(self.folder / ".dagster")
        self._environment["MILLRACE_DAGSTER_URL"] = self.placed("http://127.0.0.1:3000")
        with (self.folder / "dagster.log").open("wb") as log:
            process = subprocess.Popen(
                self.placed(command).split(), cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )

        def end():
            process.send_signal(signal.SIGINT)
            process.wait(120)

        return end

    def await_load(self):
        """Waits until the table has all that was produced; its sensor and its load are under way without us."""
        until(self._loaded, lambda offsets: offsets == self._produced, pause_s=0.5)

    def _loaded(self):
        try:
            ledger = read_ledger(str(self.warehouse / "orders"))
        except TableNotFoundError:
            return 0
        return sum(entry.next_offset for entry in ledger.partitions.values())


@pytest.mark.timeout(900)
def test_the_page_prints_what_is_written_there(kafka, tmp_path):
    reader = Reader(kafka, tmp_path)
    played = []
    with ExitStack() as running:
        for one in blocks(PAGE):
            if one.file and one.file not in GIVEN:
                reader.save(one.file, one.text)
            for line in one.text.splitlines() if one.language == "sh" else ():
                if line.startswith("dagster dev"):
                    running.callback(reader.stay(line))
            for command, output in commands(one) if one.language == "console" else ():
                if command.startswith(("millrace warehouse", "millrace dead-letters")):
                    reader.await_load()
                assert reader.run(command) == reader.placed(output), command
                played.append(command)
    assert len(played) == sum(line.startswith("$ ") for line in PAGE.read_text(encoding="utf-8").splitlines()) == 7
