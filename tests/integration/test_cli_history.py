"""`millrace history check`: what it prints, and its exit status."""

from __future__ import annotations

import json
import subprocess

import pytest

pytestmark = pytest.mark.usefixtures("warm_path")
LOST = (
    {"time_ns": 1, "process": "p", "event": "invoke", "action": "send", "steps": [["send", "t-0", "a"]]},
    {"time_ns": 2, "process": "p", "event": "ok", "steps": [["send", "t-0", "a", 0]]},
    {"time_ns": 3, "process": "p", "event": "invoke", "action": "send", "steps": [["send", "t-0", "b"]]},
    {"time_ns": 4, "process": "p", "event": "ok", "steps": [["send", "t-0", "b", 1]]},
    {"time_ns": 5, "process": "r", "event": "invoke", "action": "poll"},
    {"time_ns": 6, "process": "r", "event": "ok", "steps": [["poll", "t-0", [[1, "b"]]]]},
)


def check(path, *arguments):
    command = ["millrace", "history", "check", str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def written(path, events):
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return path


def test_findings_are_named_and_counted(tmp_path):
    result = check(written(tmp_path / "history", LOST))
    assert result.returncode == 1
    assert "lost-write: t-0: 'a', acknowledged at offset 0, was never read; offset 1 was" in result.stdout
    as_json = check(tmp_path / "history", "--json")
    assert [json.loads(line)["anomaly"] for line in as_json.stdout.splitlines()] == ["lost-write"]


def test_no_finding_is_status_0(tmp_path):
    path = written(tmp_path / "history", LOST)
    assert check(path, "--allow", "lost-write").returncode == 0
    good = check(written(path, LOST[2:]))
    assert (good.returncode, good.stdout) == (0, "2 operations, no anomaly\n")


def test_what_is_no_history_is_an_error(tmp_path):
    path = tmp_path / "history"
    for line in (b"nonsense", b"\xff"):
        path.write_bytes(line + b"\n")
        result = check(path)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.startswith("millrace: line 1 of the history")
