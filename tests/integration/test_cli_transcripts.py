"""Transcripts of the command line, in tests/transcripts/cli/: what a user types, and what is printed.

    # A remark.
    broker                          a standalone broker with its data in HERE/broker, which the commands find by
                                    MILLRACE_BOOTSTRAP; NAME=VALUE behind it are its properties
    file server.properties          a file of these lines, in the working directory
    | listeners=PLAINTEXT://127.0.0.1:PORT
    > millrace topics list          a line for the shell; what follows from it is indented below:
        topic  partitions           a line of stdout
        ! millrace: …               a line of stderr
        exit 1                      the exit status, where it is not 0

`pytest --rewrite-transcripts` writes down what comes out; the difference is reviewed as text.

Each transcript has a folder of its own. BROKER stands for the broker's address, ZOOKEEPER for that of a ZooKeeper, and
each of PORT, PORT2 … for a free port. Commands run in children of one server (millrace_support.warm_commands). What a
line starts that begins with `millrace broker` is ended when the broker listens, unless it says why it doesn't; of its
log the warnings and errors are shown. What differs from run to run is masked (HERE, ID, TIME, MS, FREE), and blank
lines are left out.
"""

import os
import re
import select
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess

TRANSCRIPTS = sorted((Path(__file__).parents[1] / "transcripts" / "cli").rglob("*.txt"))
TIMEOUT_S = 120
BROKER = re.compile(r"^broker((?: \S+=\S+)*)$", re.MULTILINE)
PLACE = re.compile(r"\b(BROKER|ZOOKEEPER|PORT\d?|HERE)\b")
MASKS = [
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|\+00:00)?"), "TIME"),
    (re.compile(r"\b1[6-9]\d{11}\b"), "MS"),
    (re.compile(r" +free_bytes$", re.MULTILINE), "  free_bytes"),
    (re.compile(r" {2,}\d{10,15}$", re.MULTILINE), "  FREE"),
]
LOG_LINE = re.compile(r"TIME (WARNING|ERROR|CRITICAL) [\w.]+: ")
QUIET_LOG_LINE = re.compile(r"TIME (INFO|DEBUG) ")


class Stage:
    """Plays one transcript in a folder."""

    def __init__(self, folder, places, warm_millrace):
        self.folder = folder
        self.places = {"HERE": str(folder), **places}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MILLRACE_", "XDG_"))}
        self.environment = {**kept, "HOME": str(folder), "LC_ALL": "C.UTF-8", "COLUMNS": "100"}
        self.environment["PATH"] = f"{warm_millrace.parent}{os.pathsep}{os.environ['PATH']}"
        if "BROKER" in places:
            self.environment["MILLRACE_BOOTSTRAP"] = places["BROKER"]

    def play(self, script):
        """The transcript as it comes out."""
        lines, file = [], None
        for line in script.splitlines():
            if line.startswith("    "):
                continue
            lines.append(line)
            if line.startswith("file "):
                file = self.folder / line.removeprefix("file ").strip()
                file.write_text("", encoding="utf-8")
            elif line.startswith("|"):
                with file.open("a", encoding="utf-8") as text:
                    text.write(self.filled(line[2:]) + "\n")
            elif line.startswith(">"):
                lines += [f"    {each}" for each in self.run(self.filled(line.removeprefix(">").strip()))]
        return "\n".join(lines) + "\n"

    def run(self, command):
        is_broker = command.startswith("millrace broker ")
        shell = ["/bin/sh", "-c", f"exec {command}" if is_broker else command]
        with subprocess.Popen(
            shell,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=-1,
            stderr=-1,
        ) as process:
            first = b""
            if is_broker:
                first = _first_line(process.stdout)
                process.send_signal(signal.SIGTERM)
            stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        said = self.masked(stderr)
        if is_broker:
            said = [LOG_LINE.sub(r"\1: ", line) for line in said if not QUIET_LOG_LINE.match(line)]
        status = [f"exit {process.returncode}"] if process.returncode else []
        return [*self.masked(first + stdout), *(f"! {line}" for line in said), *status]

    def filled(self, text):
        return PLACE.sub(lambda found: self.places[found[0]], text)

    def masked(self, output):
        text = output.decode(errors="backslashreplace")
        for name, value in self.places.items():
            text = re.sub(rf"(?<![\w.]){re.escape(value)}(?!\d)", name, text)
        for mask, name in MASKS:
            text = mask.sub(name, text)
        return [line.rstrip() for line in text.splitlines() if line.strip()]


def _first_line(stream):
    ready, _, _ = select.select([stream], [], [], TIMEOUT_S)
    assert ready, "the broker neither listens nor ends"
    return stream.readline()


@pytest.fixture
def stage(request, tmp_path, warm_millrace):
    """Makes the stage that a script asks for."""
    brokers = []

    def make(script):
        named = {found[0] for found in PLACE.finditer(script)}
        places = {name: str(free_port()) for name in named if name.startswith("PORT")}
        folder = tmp_path / "here"
        folder.mkdir()
        if started := BROKER.search(script):
            properties = dict(one.split("=", 1) for one in started[1].split())
            brokers.append(BrokerProcess(folder / "broker", properties=properties))
            places["BROKER"] = brokers[0].bootstrap
        if "ZOOKEEPER" in named:
            places["ZOOKEEPER"] = f"{request.getfixturevalue('zookeeper').address}/{uuid.uuid4().hex}"
        return Stage(folder, places, warm_millrace)

    yield make
    for broker in brokers:
        broker.close()


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_command_line_prints_what_its_transcript_says(path, stage, request):
    script = path.read_text(encoding="utf-8")
    played = stage(script).play(script)
    if request.config.getoption("--rewrite-transcripts"):
        path.write_text(played, encoding="utf-8")
    else:
        assert played == script
