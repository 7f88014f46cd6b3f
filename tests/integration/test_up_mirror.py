"""`millrace up --mirror`: a platform that has another one's topics, and says what is wrong with that."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from millrace.client import Admin, Cluster
from millrace.security.client_config import read_client_security
from millrace_support.log_guard import GUARD
from millrace_support.mirrored_records import write
from millrace_support.mirrored_topics import log_of
from millrace_support.waiting import awaited

COMMAND = (sys.executable, "-c", "from millrace_ops.cli.main import main; main()", "up")
QUICK = ("group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1")
FREE = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--no-dagster", *(f"--set={one}" for one in QUICK))
PARTITIONS = 2
RECORDS = 10


class Up:
    """A platform as `millrace up` starts it, and what it prints."""

    def __init__(self, directory, *options):
        environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
        self.directory = directory
        self.process = subprocess.Popen(
            [*COMMAND, "--dir", str(directory), *FREE, *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )  # fmt: skip
        self.printed = ""

    def read_to(self, pattern):
        """Reads what is printed, up to a line that matches; returns the match."""
        for line in self.process.stdout:
            self.printed += line
            if found := re.fullmatch(pattern, line.rstrip("\n")):
                return found
        raise AssertionError(f"the platform ended without {pattern!r}:\n{self.printed}")

    def addresses(self):
        self.read_to("Ctrl-C stops.*")
        return dict(re.findall(r"^(\S.*?\S)  +(\S+)$", self.printed, re.MULTILINE))

    def mirror(self):
        """The process of the mirror."""
        started = psutil.Process(self.process.pid).children(recursive=True)
        return next((one for one in started if "mirror" in one.cmdline() and "--config" in one.cmdline()), None)


@pytest.fixture
def up(tmp_path):
    """Starts platforms in folders of their own, and stops those that the test did not."""
    platforms = []

    def start(name, *options):
        platforms.append(Up(tmp_path / name, *options))
        return platforms[-1]

    with GUARD.folder(tmp_path / "there" / "logs"), GUARD.folder(tmp_path / "here" / "logs"):
        yield start
        for one in reversed(platforms):
            one.process.terminate()
            one.process.wait(240)
            one.process.stdout.close()


def settings_file(folder, source, *lines):
    path = Path(folder, "mirror.toml")
    path.write_text("\n".join([*lines, 'topics = ["orders", "taken"]', "[[sources]]", 'name = "east"', source, ""]))
    return str(path)


def contents(bootstrap, topic):
    return [log_of(bootstrap, topic, partition) for partition in range(PARTITIONS)]


def await_mirrored(source, target):
    awaited(lambda: contents(source, "orders") == contents(target, "east.orders") or None, "all is mirrored")


def test_a_platform_mirrors_another_one_and_its_mirror_is_started_again(up, tmp_path):
    there = up("there")
    source = there.addresses()["broker"]
    with Cluster(source) as cluster:
        Admin(cluster).create_topic("orders", PARTITIONS)
    write(source, "orders", PARTITIONS, RECORDS, seed=1)
    here = up("here", "--mirror", settings_file(tmp_path, f'bootstrap = "{source}"'))
    target = here.addresses()["broker"]
    assert "mirror is up after" in here.printed
    here.read_to("well: .*mirror.*|mirror: well again")
    with Cluster(target) as cluster:
        awaited(lambda: "east.orders" in Admin(cluster).topics() or None, "the topic is there")
    await_mirrored(source, target)

    os.kill(here.mirror().pid, signal.SIGKILL)
    log = tmp_path / "here" / "logs" / "mirror.previous.log"
    here.read_to(f"mirror: was ended by SIGKILL and is started again; the end of its log is in {re.escape(str(log))}")
    here.read_to("mirror: well again")
    write(source, "orders", PARTITIONS, RECORDS, seed=2)
    await_mirrored(source, target)

    there.process.send_signal(signal.SIGTERM)
    assert there.process.wait(240) == 0
    here.read_to("mirror: source east: .*")
    mirror = here.mirror()
    here.process.send_signal(signal.SIGTERM)
    assert here.process.wait(240) == 0
    assert not mirror.is_running()


def test_a_hardened_platform_is_mirrored_into_and_a_topic_that_stops_is_named(up, tmp_path):
    """The file of settings says nothing of the target's login: the mirror has the administrator's."""
    source = up("there").addresses()["broker"]
    with Cluster(source) as cluster:
        Admin(cluster).create_topic("orders", PARTITIONS)
    here = up("here", "--secure", "--mirror", settings_file(tmp_path, f'bootstrap = "{source}"', "keep_names = true"))
    addresses = here.addresses()
    here.read_to("well: .*mirror.*|mirror: well again")
    with Cluster(addresses["broker"], security=read_client_security(addresses["client properties"])) as cluster:
        awaited(lambda: "orders" in Admin(cluster).topics() or None, "the topic is there")
        Admin(cluster).create_topic("taken", PARTITIONS)
    with Cluster(source) as cluster:
        Admin(cluster).create_topic("taken", PARTITIONS)
    here.read_to("mirror: east/taken: .*")


FAULTS = {
    "bootstrap = 9092": r"{file}, line 4: sources\[0\].bootstrap: 9092: a text is expected",
    'bootstrap = "127.0.0.1:1"\nmoode = 1': r"{file}, line 5: sources\[0\].moode: there is no such setting.*",
    "bootstrap =": "{file}: .*",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_in_the_file_is_said_before_anything_starts(up, tmp_path, fault):
    file = settings_file(tmp_path, fault)
    platform = up("here", "--mirror", file)
    assert platform.process.wait(240) == 1
    assert re.fullmatch(f"millrace: {FAULTS[fault].format(file=re.escape(file))}\n", platform.process.stdout.read())
    assert not (tmp_path / "here").exists()
