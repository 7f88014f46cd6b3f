"""Every command, a broker, a load and the clients in processes of their own, which import nothing before they need it.

Most other tests fork commands and brokers from servers that have imported everything (`millrace_support.warm_servers`),
where an import that is missing, or that goes round in a circle, is not seen. `millrace up`, the supervisor, starts cold
in `test_up.py`.
"""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
import typer

from millrace.ports import free_port
from millrace_ops.cli.app import app

MILLRACE = Path(sys.executable).with_name("millrace")
TIMEOUT_S = 240

MIRROR = "--source nobody=127.0.0.1:1 --target BROKER"

# Each command's line, and its exit status where it is not 0: some only say in their cold process why they can't.
LINES = {
    "broker": ("broker --standalone", 2),
    "produce": ("produce t --file lines", 0),
    "consume": ("consume t --max-messages 3 --json", 0),
    "dump": ("dump data/t-0/00000000000000000000.log --records", 0),
    "import-legacy": ("import-legacy missing t", 1),
    "verify": ("verify data/t-0/00000000000000000000.log", 1),
    "doctor": ("doctor --standalone --data new --listen 127.0.0.1:0", 0),
    "up": ("up --help", 0),
    "demo": ("demo --help", 0),
    "monitoring": ("monitoring made", 0),
    "bench": ("bench append --peer nobody", 2),
    "cluster health": ("cluster health", 0),
    "brokers list": ("brokers list", 0),
    "brokers describe": ("brokers describe 1", 0),
    "brokers adopt": ("brokers adopt t --admin 127.0.0.1:1 --dry-run", 1),
    "brokers elect": ("brokers elect --all", 0),
    "brokers drain": ("brokers drain 1 --dry-run", 1),
    "brokers strays": ("brokers strays", 0),
    "topics list": ("topics list", 0),
    "topics create": ("topics create made", 0),
    "topics describe": ("topics describe t", 0),
    "topics extend": ("topics extend t --partitions 1", 1),
    "topics delete-records": ("topics delete-records t --before 0 --yes", 0),
    "topics delete": ("topics delete none", 1),
    "topics reassign": ("topics reassign t --brokers 1 --dry-run", 0),
    "configs describe": ("configs describe --topic t", 0),
    "configs set": ("configs set retention.ms=86400000 --topic t", 0),
    "configs unset": ("configs unset retention.bytes --topic t", 0),
    "quotas list": ("quotas list", 0),
    "quotas set": ("quotas set producer_byte_rate=1e9 --user alice", 0),
    "quotas unset": ("quotas unset consumer_byte_rate --user alice", 0),
    "users create": ("users create alice --mechanism SCRAM-SHA-256 --password-file lines", 0),
    "users list": ("users list", 0),
    "users delete": ("users delete nobody", 1),
    "users password": ("users password nobody --password-file lines", 1),
    "acls list": ("acls list", 1),
    "acls add": ("acls add --allow User:alice --operation Read --topic t --dry-run", 0),
    "acls remove": ("acls remove --topic t --yes", 1),
    "groups list": ("groups list", 0),
    "groups describe": ("groups describe none", 1),
    "groups delete": ("groups delete none", 1),
    "offsets export": ("offsets export none", 0),
    "offsets import": ("offsets import g missing", 1),
    "offsets reset": ("offsets reset g --topic t --to earliest --create --execute", 0),
    "offsets migrate": ("offsets migrate g --to kafka --zookeeper ZOOKEEPER", 0),
    "offsets from-legacy": ("offsets from-legacy g --map missing --legacy-zookeeper 127.0.0.1:1", 1),
    "tokens create": ("tokens create", 1),
    "tokens renew": ("tokens renew id", 1),
    "tokens expire": ("tokens expire id", 1),
    "tokens list": ("tokens list", 1),
    "history check": ("history check missing", 1),
    "warehouse load": ("warehouse load t --table lake/t --dry-run", 0),
    "warehouse tables": ("warehouse tables lake", 0),
    "warehouse ledger": ("warehouse ledger lake/t", 0),
    "warehouse audit": ("warehouse audit lake/t --deep", 0),
    "warehouse query": ("warehouse query lake 'SELECT count(*) FROM t'", 0),
    "warehouse erase": ("warehouse erase lake/t --key one --dry-run", 0),
    "warehouse reload": ("warehouse reload t --table lake/t --dry-run", 0),
    "warehouse backfill": ("warehouse backfill t --table lake/t --dry-run", 0),
    "warehouse compact": ("warehouse compact lake/t", 0),
    "warehouse checkpoint": ("warehouse checkpoint lake/t", 0),
    "warehouse vacuum": ("warehouse vacuum lake/t --dry-run", 0),
    "warehouse upkeep": ("warehouse upkeep lake/t", 0),
    "warehouse register": ("warehouse register lake/t hive:thrift://127.0.0.1:1/demo.t", 1),
    "warehouse pack": ("warehouse pack --help", 0),
    "warehouse switch": ("warehouse switch lake/t t --dry-run", 1),
    "dead-letters list": ("dead-letters list lake/t", 1),
    "dead-letters show": ("dead-letters show lake/t 0 7", 1),
    "dead-letters replay": ("dead-letters replay lake/t --dry-run", 1),
    "zookeeper secure": ("zookeeper secure --zookeeper ZOOKEEPER --zookeeper-config missing --dry-run", 1),
    "zookeeper unsecure": ("zookeeper unsecure --zookeeper ZOOKEEPER --zookeeper-config missing --dry-run", 1),
    "mirror status": (f"mirror status {MIRROR}", 0),
    "mirror pause": (f"mirror pause {MIRROR}", 0),
    "mirror resume": (f"mirror resume {MIRROR}", 0),
    "mirror switch-over": (f"mirror switch-over {MIRROR}", 0),
    "mirror switch-back": (f"mirror switch-back {MIRROR}", 1),
    "mirror audit": (f"mirror audit {MIRROR}", 1),
}

# Forms of a command that import what its line does not.
FORMS = {"warehouse load --defs": ("warehouse load --defs defs.toml --dry-run", 0)}
DEFS = 'warehouse = "lake"\n[[tables]]\ntopic = "t"\n'

CLIENTS = """
import sys
from millrace import Producer, SimpleConsumer
from millrace.client.consumer import ConsumerConnector

bootstrap, zookeeper = sys.argv[1:]
with Producer(broker_list=bootstrap) as producer:
    producer.send("clients", b"v", partition=0)
with SimpleConsumer(bootstrap) as consumer:
    assert [record.value for record in consumer.messages("clients", 0)] == [b"v"]
properties = {"group.id": "g", "zookeeper.connect": zookeeper, "auto.offset.reset": "smallest"}
with ConsumerConnector(properties) as connector:
    [stream] = connector.create_message_streams({"clients": 1})["clients"]
    assert next(stream).value == b"v"
"""


class Stage(NamedTuple):
    """A folder with a broker's data, a table and a file of lines, and what commands are started with there."""

    folder: Path
    environment: dict
    places: dict

    def run(self, program, *arguments):
        return subprocess.run(
            [*program, *(self.places.get(word, word) for word in arguments)],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def millrace(self, line):
        return self.run([MILLRACE], *shlex.split(line))


def commands(command=None, path=()):
    """Returns the name of each command that `millrace` has."""
    command = command or typer.main.get_command(app)
    if not hasattr(command, "commands"):
        return [" ".join(path)]
    return [name for word, below in command.commands.items() for name in commands(below, (*path, word))]


@pytest.fixture(scope="module")
def stage(tmp_path_factory, zookeeper):
    """Starts a cold broker, produces to it, and loads its topic."""
    folder = tmp_path_factory.mktemp("cold")
    address = f"127.0.0.1:{free_port()}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MILLRACE_", "XDG_"))}
    environment = kept | {"HOME": str(folder), "MILLRACE_BOOTSTRAP": address}
    cluster = f"{zookeeper.address}/cold-{uuid4().hex}"
    stage = Stage(folder, environment, {"ZOOKEEPER": cluster, "BROKER": address})
    (folder / "defs.toml").write_text(DEFS)
    (folder / "lines").write_text("one:1\ntwo:2\nthree:3\n")
    arguments = ["broker", "--zookeeper", cluster, "--id", "1", "--data", "data", "--listen", address]
    with subprocess.Popen([MILLRACE, *arguments], cwd=folder, env=environment, stdout=-1) as broker:
        assert broker.stdout.readline()
        for line in ("produce t --file lines", "warehouse load t --table lake/t"):
            done = stage.millrace(line)
            assert done.returncode == 0, done.stderr
        yield stage
        broker.send_signal(signal.SIGTERM)
    assert broker.returncode == 0


def test_every_command_has_a_line():
    assert list(LINES) == commands()


@pytest.mark.parametrize("command", LINES | FORMS)
def test_a_command_in_a_process_of_its_own(stage, command):
    line, status = (LINES | FORMS)[command]
    done = stage.millrace(line)
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stdout + done.stderr


def test_the_clients_in_a_process_of_their_own(stage):
    done = stage.run([sys.executable, "-c", CLIENTS], "BROKER", "ZOOKEEPER")
    assert done.returncode == 0, done.stderr
