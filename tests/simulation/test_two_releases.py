"""The former release is loaded beside this one, and its brokers are of one cluster with those of this release."""

import os
import subprocess
import sys

import pytest

from millrace.errors import MillraceError, SetupError, ZooKeeperError
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.simulation import simulation
from millrace_support.simulation.releases.former_modules import SHARED, former_module
from millrace_support.simulation.releases.releases import change_release, former_release, is_former
from millrace_support.simulation.simulated_broker import SimulatedBroker
from millrace_support.simulation.simulation import Simulation, play
from millrace_support.simulation.swarm.settings import BROKERS, former_brokers

SEEDS = range(400)


@pytest.fixture(scope="module")
def former():
    """The class of brokers of the former release."""
    try:
        return former_release()
    except SetupError as error:
        pytest.skip(str(error))


def seed_of_two_releases(first=0):
    return next(seed for seed in range(first, first + 100) if former_brokers(seed) is not None)


def test_a_quarter_of_the_seeds_has_two_releases():
    drawn = [former_brokers(seed) for seed in SEEDS]
    assert drawn == [former_brokers(seed) for seed in SEEDS]
    mixed = [one for one in drawn if one is not None]
    assert 60 < len(mixed) < 140
    assert set().union(*mixed) == set(BROKERS)


@pytest.mark.usefixtures("former")
def test_former_modules_have_former_modules_alone():
    roles = former_module("millrace_broker.replication.partition_roles")
    assert roles.StorageError is former_module("millrace.errors").StorageError
    assert roles.__file__ != sys.modules["millrace_broker.replication.partition_roles"].__file__
    of_this_release = {
        (name, of)
        for name, module in list(sys.modules.items())
        if name.startswith(("former.millrace.", "former.millrace_broker."))
        for of in (str(getattr(value, "__module__", None)) for value in vars(module).values())
        if of.startswith(("millrace.", "millrace_broker.")) and of not in SHARED
    }
    assert of_this_release == {("former.millrace.errors", "millrace.errors")}  # the base of its errors


@pytest.mark.usefixtures("former")
def test_an_import_inside_a_function_finds_the_former_release():
    tls = former_module("millrace.zk.tls")
    imported = [
        name for code in tls.__loader__.get_code(tls.__name__).co_consts for name in getattr(code, "co_names", ())
    ]
    assert "former.millrace.security.tls" in imported


@pytest.mark.usefixtures("former")
def test_an_error_of_the_former_release_is_an_error_of_millrace():
    error = former_module("millrace.errors").ZooKeeperError("lost")
    assert isinstance(error, MillraceError)
    assert not isinstance(error, ZooKeeperError)


@pytest.mark.usefixtures("former")
def test_a_broker_gets_the_other_release_and_its_own_again_on_the_same_disk():
    broker = Simulation(seed_of_two_releases()).brokers[1]
    assert isinstance(broker.fs, CrashFileSystem)
    releases, disk = [], broker.fs
    for _ in range(3):
        releases.append(is_former(broker))
        change_release(broker)
    assert releases in ([True, False, True], [False, True, False])
    assert broker.fs is disk
    assert isinstance(broker, SimulatedBroker) != is_former(broker)


@pytest.mark.usefixtures("former")
def test_a_seed_of_two_releases_is_the_same_history_in_another_process():
    seed = seed_of_two_releases(4711)
    printed = {
        subprocess.run(
            [sys.executable, "-W", "ignore", simulation.__file__, str(seed)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(printed) == 1
    assert "begin with the former release" in printed.pop()
    assert play(seed).anomalies == []
