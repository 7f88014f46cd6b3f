"""Apache Kafka as the judge: fixtures that find its jars, and skip where `make peers` has not brought them."""

import os
import shutil
import tarfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from millrace.client import Cluster, SimpleConsumer
from millrace.errors import MillraceError, SetupError
from millrace.records.batch import walk
from millrace.records.record import decode_records
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_pipelines.spark.archive import pack_environment
from millrace_support.spark_machines import may_have_machines

PEERS = Path(__file__).parents[2] / ".peers"
HERE = f"{Path(__file__).parent}/"


def pytest_collection_modifyitems(items):
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.peers)


COMPARED = "compared"
AGREES = "agrees"


def pytest_terminal_summary(terminalreporter):
    """Prints what the differential test has compared; an API that Millrace does not serve yet is not in the list."""
    compared, agreeing = defaultdict(Counter), []
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == COMPARED:
                api, version = value
                compared[api][version] += 1
            elif name == AGREES:
                agreeing.append(value)
    if compared:
        terminalreporter.section("compared with Apache Kafka, answer by answer")
    for api, versions in sorted(compared.items()):
        terminalreporter.line(f"{api} v{min(versions)}-v{max(versions)}: {versions.total()} transcripts")
    for scenario in agreeing:
        terminalreporter.line(f"agrees by now, its line under OPEN can go: {scenario}")


@pytest.fixture(scope="session")
def find_peer():
    """Returns a function that returns the jars of a version, or skips the test and says how to get them."""
    return kafka_or_skip


def kafka_or_skip(version):
    try:
        return find_kafka(version, PEERS)
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka():
    """The last version that knows ZooKeeper."""
    return kafka_or_skip("3.9")


@pytest.fixture(scope="session")
def packed_python(tmp_path_factory):
    """An archive for executors, as a file and unpacked; skips where tests may not have machines for them."""
    if not may_have_machines():
        pytest.skip("only root may mount, and give Spark's workers another root and another user")
    folder = tmp_path_factory.mktemp("packed")
    file, unpacked = folder / "executors.tar.gz", folder / "unpacked"
    pack_environment(file)
    with tarfile.open(file) as archive:
        archive.extractall(unpacked, filter="tar")
    yield file, unpacked
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shared_with_group():
    """Lets what this process makes be written to by the group that the users of all machines share."""
    former = os.umask(0o002)
    yield
    os.umask(former)


@pytest.fixture(scope="session", params=["3.9", "4.1"])
def any_kafka(request):
    """Each version in turn, for tools that need no broker."""
    return kafka_or_skip(request.param)


@retry(retry=retry_if_exception_type(MillraceError), stop=stop_after_delay(60), wait=wait_fixed(0.05), reraise=True)
def await_leader(cluster, topic):
    """Waits until Kafka, which serves before its controller has told it of the topics, knows the leader."""
    SimpleConsumer(cluster).latest(topic, 0)


@pytest.fixture(scope="session")
def read_all():
    """All records of a partition as (offset, timestamp, key, value, headers), by our own client."""

    def read(bootstrap, topic):
        with Cluster(bootstrap) as cluster:
            await_leader(cluster, topic)
            consumer = SimpleConsumer(cluster)
            offset, end = consumer.earliest(topic, 0), consumer.latest(topic, 0)
            found = []
            while offset < end:
                batches = consumer.fetch(topic, 0, offset).records
                found += [record for record in decode_records(batches) if record.offset >= offset]
                offset = max(header.next_offset for _, header in walk(batches))
            return [(one.offset, one.timestamp_ms, one.key, one.value, one.headers) for one in found]

    return read
