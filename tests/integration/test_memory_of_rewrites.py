"""The memory of an upsert and of an audit is bounded by what the documentation says, not by the table."""

import json
import os
import subprocess
import sys

FILES, ROWS, VALUE_BYTES, CHANGES = 4, 250_000, 1000, 20_000
BARE_MIB = 200
"""A Python process that has loaded Millrace, PyArrow and delta-rs."""
OF_DRIVER_MIB = 150
OF_TASK_MIB = 400
"""The memory that a driver and a task may take beyond that; docs/warehouse-modes.md states it."""


def test_neither_driver_nor_task_has_the_table_in_memory(tmp_path):
    sizes = [str(number) for number in (FILES, ROWS, CHANGES, VALUE_BYTES)]
    command = [sys.executable, "-m", "millrace_support.measured_rewrites", str(tmp_path / "table"), *sizes]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(run.stdout)
    assert found["findings"] == []
    assert found["table"] > 1.5 * (BARE_MIB + OF_TASK_MIB)
    assert found["driver of the upsert"] < BARE_MIB + OF_DRIVER_MIB
    assert found["driver of the audit"] < BARE_MIB + OF_DRIVER_MIB
    assert found["task of the upsert"] < BARE_MIB + OF_TASK_MIB
    assert found["task of the audit"] < BARE_MIB + OF_TASK_MIB
