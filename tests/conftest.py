"""Fixtures that start real parts: each test gets what it needs on free ports, and nothing is left behind.

A test marked `soak(rounds=N, minutes=M)` has three forms. Its fixture `rounds` counts from 0: to N as a rule, with
`--proof` to a fifth of it, with `--soak` for M minutes, or, where it is marked with `soak_rounds` instead, to that
number. What it has recorded by `record_property` is then printed at the end.

`broker` is the plugin's own fixture (docs/testing.md).

`make test` and `make test-all` run two processes for each core and one more, since tests often wait for servers, but
five at most. The tests of a file run in one process, in their order, so fixtures of a module are made once; those of a
session are made once in each process.
"""

import gc
import logging
import os
import signal
import sys
import time
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from millrace.testing.broker import BrokerProcess
from millrace.zk import embedded
from millrace_benchmarks.kafka_broker import Kafka, KafkaBroker, class_archive_flags
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.warm_brokers import WarmBrokers
from millrace_support.warm_commands import warm_commands
from millrace_support.warm_kafka import WarmKafka
from millrace_support.warm_python import START, warm_python
from millrace_support.warm_servers import WarmServers, folder_of_servers
from millrace_support.warm_tools import WarmTools

pytest.register_assert_rewrite("millrace_support.transcripts")
# By name too, for a clone whose entry points are not installed.
pytest_plugins = ["millrace.testing.plugin", "millrace_support.log_guard", "millrace_support.proof", "pytester"]

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SUPPORT = Path(__file__).with_name("support")
SPARK_OPTION = f"-Dspark.executorEnv.PYTHONPATH={START}{os.pathsep}{SUPPORT}"
KAFKA_SOURCE = Path(__file__).parents[1] / ".peers" / "spark-kafka" / "libs"
TOGETHER = ("tests/clients/",)  # folders whose last file checks what the other files did
QUICK = ("tests/property/", "tests/simulation/", "tests/unit/")  # folders of tests that wait for nothing
FEWER_IN_PROOF = 5  # times fewer rounds
OBJECTS_BETWEEN_COLLECTIONS = 50_000
SERVERS = pytest.StashKey()
TOOLS = pytest.StashKey()
WAITING_SHARE = 0.8  # the share of a run in which all files of tests that wait are begun

settings.register_profile("no timed assertions", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no timed assertions")


def pytest_addoption(parser):
    parser.addoption("--soak", action="store_true", help="tests marked `soak` run for their minutes")
    parser.addoption("--rewrite-transcripts", action="store_true", help="write down what commands print now")


def pytest_configure(config):
    """Lets SIGINT interrupt this process, since what a shell has started in the background ignores it.

    The JVMs of Spark and of ZooKeeper take their classes from the archives that make creates. Spark's daemon of Python
    workers starts warm where programs do. The JVMs of executors and of launchers compile quickly, as those of drivers
    do. Brokers are forked from a warm server (millrace_support.warm_brokers), which all processes share. Apache Kafka's
    brokers and tools run one after the other in JVMs that stay (warm_kafka, warm_tools).
    """
    archive = class_archive_flags(Path(sys.prefix, "spark-classes.jsa"))
    executor = " ".join(["-Dspark.executor.extraJavaOptions=" + QUICK_START, *archive])
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*archive, SPARK_OPTION, f'"{executor}"'])
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_START
    embedded.JAVA_FLAGS += class_archive_flags(Path(sys.prefix, "zookeeper-classes.jsa"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.add_cleanup(gc.unfreeze)
    config.stash[SERVERS] = WarmServers(_folder_of_servers(config))
    BrokerProcess.start_process = WarmBrokers(config.stash[SERVERS]).start
    kafka_brokers = WarmKafka()
    config.add_cleanup(kafka_brokers.close)
    KafkaBroker.start_process = kafka_brokers.start
    tools = config.stash[TOOLS] = WarmTools()
    config.add_cleanup(tools.close)
    Kafka.run = lambda kafka, *words, stdin=b"": tools.run(kafka, *words, stdin=stdin)


def _folder_of_servers(config):
    """Returns the folder that the first process of the run has created, or creates it as the first one."""
    if hasattr(config, "workerinput"):
        return Path(config.workerinput["warm_servers"])
    created = ExitStack()
    config.add_cleanup(created.close)
    return created.enter_context(folder_of_servers())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["warm_servers"] = str(node.config.stash[SERVERS].folder)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keeps the garbage collector from looking at modules and tests, which stay until the end.

    Afterwards it runs once for many objects, since most of what a test makes is gone without it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Spreads the files of tests that wait for nothing among those whose tests wait, where processes share the work.

    Of the former those with few tests come last, so that all processes end at about the same time.
    """
    if not hasattr(config, "workerinput"):
        return
    files = [list(file) for _, file in groupby(items, lambda item: item.path)]
    quick = [file for file in files if file[0].nodeid.startswith(QUICK)]
    waiting = [file for file in files if not file[0].nodeid.startswith(QUICK)]
    quick.sort(key=len, reverse=True)
    placed = [((number + 1) / len(quick), file) for number, file in enumerate(quick)]
    placed += [(WAITING_SHARE * number / len(waiting), file) for number, file in enumerate(waiting)]
    items[:] = [item for _, file in sorted(placed, key=itemgetter(0)) for item in file]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    return 2 * (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Gives each process a file at a time, and some folders as a whole."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            together = (folder for folder in TOGETHER if nodeid.startswith(folder))
            return next(together, super()._split_scope(nodeid))

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--soak"):
        terminalreporter.section("what was done")
        for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
            figures = ", ".join(f"{name} {value}" for name, value in report.user_properties)
            terminalreporter.line(f"{report.outcome} {report.nodeid} in {report.duration:.0f} s: {figures}")


@pytest.fixture
def rounds(request):
    """Yields the numbers of the rounds that a test marked `soak` is to run."""
    kwargs = request.node.get_closest_marker("soak").kwargs
    is_long = request.config.getoption("--soak")

    def count():
        number, deadline = 0, time.monotonic() + 60 * kwargs["minutes"]
        while time.monotonic() < deadline:
            yield number
            number += 1

    if is_long and "minutes" in kwargs:
        return count()
    number = kwargs["soak_rounds" if is_long else "rounds"]
    return iter(range(max(1, number // FEWER_IN_PROOF) if request.config.getoption("--proof") else number))


@pytest.fixture
def without_logs():
    """Lets nothing be logged, where what is logged of each of many inputs is no news."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(level)


@pytest.fixture(scope="session")
def warm_tools(pytestconfig):
    """Kafka's tools in JVMs that stay, for those that are to fail: `attempt` returns how they end."""
    return pytestconfig.stash[TOOLS]


@pytest.fixture(scope="session")
def warm_millrace(tmp_path_factory, pytestconfig):
    """The path of a `millrace` that starts at once, for tests of many commands."""
    return warm_commands(pytestconfig.stash[SERVERS], tmp_path_factory.mktemp("bin"))


@pytest.fixture(scope="session")
def warm_programs(pytestconfig):
    """The environment in which Python programs start without their imports."""
    return warm_python(pytestconfig.stash[SERVERS])


@pytest.fixture(scope="session")
def warm_spark(warm_programs):
    """Yields the environment in which loads, one after the other, share a JVM, which knows Spark's Kafka source."""
    from millrace_support.warm_jvm import warm_jvm

    with warm_jvm(warm_programs, KAFKA_SOURCE.glob("*.jar")) as environment:
        yield environment


@pytest.fixture(scope="module")
def warm_processes(warm_programs):
    """Lets the Python programs of a module's tests start warm."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in warm_programs.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def warm_loads(warm_processes, warm_spark):  # noqa: ARG001  both change the environment
    """Lets the Python programs and the loads of a module's tests start warm."""
    from millrace_support.warm_jvm import forget_jvm

    with pytest.MonkeyPatch.context() as patch:
        for name, value in warm_spark.items():
            patch.setenv(name, value)
        yield
    forget_jvm(warm_spark)


@pytest.fixture
def warm_path(warm_millrace, monkeypatch):
    """Puts `warm_millrace` first in PATH, for tests that call it by its name."""
    monkeypatch.setenv("PATH", str(warm_millrace.parent), prepend=os.pathsep)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory):
    """Starts a ZooKeeper for the whole run; each test has its own chroot."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(params=["delta", "iceberg"])
def any_address(request, tmp_path):
    """The address of a table that is not there yet, in one format after the other."""
    return f"{tmp_path}/table" if request.param == "delta" else f"iceberg:{tmp_path}/lake/shop.table"
