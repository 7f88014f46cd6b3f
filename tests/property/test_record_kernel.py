"""The compiled record kernel against its Python path on hostile bytes, also under AddressSanitizer and UBSan."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from millrace import kernel
from millrace.errors import SetupError
from millrace_support.kernel_fuzz import fuzz
from millrace_support.sanitized_kernel import sanitized_environment

FUZZ = [sys.executable, "-m", "millrace_support.kernel_fuzz"]
INPUTS = 2000
SANITIZED_INPUTS = 1000

needs_kernel = pytest.mark.skipif(kernel.native is None, reason=f"the record kernel is {kernel.description}")


@needs_kernel
@pytest.mark.soak(rounds=2, minutes=6)
def test_kernel_and_python_agree_on_hostile_bytes(rounds, record_property):
    ends = Counter()
    for seed in rounds:
        ends += fuzz(INPUTS, seed)
    assert ends["decoded"] > INPUTS / 4
    assert ends["CorruptRecordError"] > INPUTS / 4
    record_property("inputs", ends.total())
    record_property("ends", dict(ends))


@pytest.mark.soak(rounds=1, minutes=4)
@pytest.mark.timeout(600)
def test_the_sanitizers_find_nothing(rounds, tmp_path, record_property):
    try:
        environment = sanitized_environment(tmp_path)
    except SetupError as error:
        pytest.skip(str(error))
    where = [sys.executable, "-c", "import millrace.kernel; print(millrace.kernel.native.__file__)"]
    loaded = subprocess.run(where, env=environment, capture_output=True, text=True, check=True)
    assert loaded.stdout.startswith(str(tmp_path))
    inputs = 0
    for seed in rounds:
        command = [*FUZZ, str(SANITIZED_INPUTS), str(1000 + seed)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")
        inputs += sum(json.loads(result.stdout).values())
    record_property("inputs", inputs)
