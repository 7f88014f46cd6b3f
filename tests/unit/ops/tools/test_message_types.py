"""The types of the messages are current, are not loaded at run time, and let mypy refuse a misspelt field."""

import subprocess
import sys
from pathlib import Path

import pytest

from millrace_broker.handlers.registry import APIS
from millrace_tools.message_types import render, versions

ROOT = Path(__file__).parents[4]
HANDLER = """
from millrace.wire.messages import HEARTBEAT, LIST_GROUPS

def handle(version: int, body: bytes) -> bytes:
    request = HEARTBEAT.decode_request(version, body)
    print(request.group_id, request.group_instance_id)
    {request}
    return HEARTBEAT.encode_response(version, {response})

def ask(version: int, body: bytes) -> bytes:
    print([one.group_id for one in LIST_GROUPS.decode_response(version, body).groups])
    return LIST_GROUPS.encode_request(version, {{"states_filter": ["Stable"]}})
"""
RIGHT = HANDLER.format(request="print(request.member_id)", response='{"throttle_time": 0, "error_code": 0}')
MISSPELT = HANDLER.format(request="print(request.member_ide)", response='{"throttle_time": 0, "error_coed": 0}')


def mypy(path, code):
    path.write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", path]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_the_files_are_up_to_date():
    made = render()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    assert stale == [], "python -m millrace_tools.message_types"
    assert set(next(iter(made)).parent.joinpath("messages").glob("*.py")) <= set(made)


def test_they_cover_what_the_broker_serves():
    served = {key: range(api.versions.minimum, api.versions.maximum + 1) for key, api in APIS.items()}
    assert {key: versions(key) for key in APIS} == served


def test_no_type_is_loaded_at_run_time():
    code = (
        "import sys, millrace_broker.handlers.registry; print([one for one in sys.modules if '.wire.messages.' in one])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


@pytest.mark.timeout(300)
def test_mypy_refuses_a_misspelt_field(tmp_path):
    assert "Success" in mypy(tmp_path / "right.py", RIGHT)
    refused = mypy(tmp_path / "misspelt.py", MISSPELT)
    assert '"HeartbeatRequest" has no attribute "member_ide"' in refused
    assert 'Extra key "error_coed" for TypedDict "HeartbeatResponseFields"' in refused
