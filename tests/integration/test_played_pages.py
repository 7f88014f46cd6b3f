"""Pages are played: docs/tutorial.md from its first file to its last query, and the commands of README.md and others.

A block behind the name of a file becomes that file. Of a block of the console, each line behind `$ ` is a command, and
what follows it is what the command writes, in the tutorial to stdout. What differs from run to run is masked on both
sides.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millrace_support.pages import ROOT, block, blocks, commands

PAGE = ROOT / "docs" / "tutorial.md"
ADDRESS = "127.0.0.1:9092"
MASKS = [
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\+00:00"), "TIME"),
    (re.compile(r"in \d+\.\d s$", re.MULTILINE), "in SECONDS"),
    (re.compile(r" +$", re.MULTILINE), ""),
]


def masked(text):
    for mask, name in MASKS:
        text = mask.sub(name, text)
    return text


@pytest.fixture
def run(tmp_path, broker_session, warm_millrace, warm_spark):
    """Runs a command of the page in a folder, and returns what it prints."""
    path = os.pathsep.join([str(warm_millrace.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **warm_spark, "PATH": path, "MILLRACE_BOOTSTRAP": broker_session.bootstrap}

    def run_one(command):
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    return run_one


def test_the_tutorial_prints_what_is_written_there(run, tmp_path, broker_session):
    played = []
    for one in blocks(PAGE):
        if one.file:
            (tmp_path / one.file).write_text(one.text.replace(ADDRESS, broker_session.bootstrap), encoding="utf-8")
        elif one.language == "console":
            for command, output in commands(one):
                if command.startswith("millrace broker "):
                    assert output == f"listening {ADDRESS}\n"
                else:
                    assert masked(run(command)) == masked(output), command
                    played.append(command)
    assert len(played) == sum("\n$ " in f"\n{line}" for line in PAGE.read_text(encoding="utf-8").splitlines()) - 1


def test_what_a_platform_refuses_is_said_as_in_its_page(run, tmp_path):
    (tmp_path / "broker.properties").write_text("num.partitions=3\nlisteners=PLAINTEXT://:9092\n", encoding="utf-8")
    [shown] = [one for one in blocks(ROOT / "docs" / "platform.md") if "num.partition=3" in one.text]
    for command, output in commands(shown):
        assert run(f"{command} 2>&1; true") == output


def test_the_commands_of_the_readme_run(run):
    """All but those that install Millrace and start the broker, which the fixtures do."""
    lines = block("README.md", "sh", "millrace consume weather").splitlines()
    outputs = [run(line) for line in lines if line and not line.startswith(("pip ", "millrace broker "))]
    assert outputs[1] == '{"city": "Wien", "degrees": 21.5}\n'
    assert outputs[-1].split()[-1] == "1"
