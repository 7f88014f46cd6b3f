"""A mirror between two simulated clusters under random faults: nothing is lost, nothing is there twice."""

import os
import subprocess
import sys

import pytest

from millrace_support.simulation.mirror import simulation
from millrace_support.simulation.mirror.planted_faults import FAULTS, find, hints
from millrace_support.simulation.mirror.simulation import play


@pytest.mark.timeout(4 * 3600)
@pytest.mark.soak(rounds=300, soak_rounds=10_000)
def test_a_mirror_under_faults_has_no_anomaly(rounds, record_property):
    acknowledged = played = 0
    for seed in rounds:
        outcome = play(seed)
        played, acknowledged = played + 1, acknowledged + outcome.acknowledged
        assert outcome.anomalies == [], "\n".join((f"seed {seed}", *outcome.history, *outcome.anomalies))
    assert acknowledged > played
    record_property("seeds", played)
    record_property("acknowledged", acknowledged)


@pytest.mark.timeout(3600)  # where the seed that found a fault shows nothing any more, hundreds may have to be played
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, record_property):
    seed = find(name, hints().get(name, 0))
    record_property("seed", seed)
    assert seed is not None


def test_a_seed_is_the_same_history_in_another_process():
    folders = os.pathsep.join(sys.path)
    printed = {
        subprocess.run(
            [sys.executable, "-W", "ignore", simulation.__file__, "4711"],
            env={**os.environ, "PYTHONPATH": folders, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(printed) == 1
    assert "all is mirrored" in printed.pop()
