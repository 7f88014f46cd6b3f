"""Retention, compaction and the recovery check as Dagster runs them, on a real broker's logs."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dagster as dg
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.testing.local_broker import LocalBroker
from millrace_pipelines.defs.admin_endpoint import AdminEndpoint
from millrace_pipelines.defs.maintenance import compaction_asset, recovery_check_asset, retention_asset
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.http import ServiceUnreachableError
from millrace_support.broker_properties import ON_REQUEST
from millrace_support.held_brokers import HeldDoor
from millrace_support.warm_python import cold_programs

pytestmark = pytest.mark.usefixtures("warm_processes")

VALUE = b"v" * 1000
retention, compaction, recovery_check = retention_asset("lake"), compaction_asset("lake"), recovery_check_asset("lake")
TOKEN = "hush"


@pytest.fixture
def broker():
    with LocalBroker(properties=ON_REQUEST) as broker:
        yield broker


@pytest.fixture
def millrace(broker):
    return resource_of(broker)


def resource_of(broker, **fields):
    return MillraceResource(
        bootstrap=broker.bootstrap,
        admin_url=broker.admin_url,
        warehouse_dir="",
        schema_dir="",
        master="local[1,3]",
        **{"admin_token": broker.admin_token, **fields},
    )


def run(asset, millrace, **config):
    """The result of a run with this configuration, and the instance's records of it."""
    settings = {"ops": {asset.op.name: {"config": config}}} if config else {}
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [asset], instance=instance, resources={"lake": millrace}, run_config=settings, raise_on_error=False
        )
        [key] = asset.keys
        observed = instance.fetch_observations(key, limit=10).records
        assert bool(observed) + bool(instance.fetch_materializations(key, limit=10).records) <= 1
        return result, [record.asset_observation.metadata for record in observed]


def materialize(asset, millrace, **config):
    result, _ = run(asset, millrace, **config)
    assert result.success
    [materialization] = result.asset_materializations_for_node(asset.op.name)
    return materialization.metadata, result.get_asset_check_evaluations()


def observe(asset, millrace, **config):
    """The metadata of a dry run, which is an observation and nothing else."""
    result, [metadata] = run(asset, millrace, dry_run=True, **config)
    assert result.success
    assert not result.asset_materializations_for_node(asset.op.name)
    assert not result.get_asset_check_evaluations()
    return metadata


def failure(asset, millrace, **config):
    """(attempts, the step's error) of a run that fails."""
    result, _ = run(asset, millrace, **config)
    assert not result.success
    [step] = result.filter_events(lambda event: event.is_step_failure)
    retries = result.filter_events(lambda event: event.is_step_restarted)
    data = step.event_specific_data
    assert data.user_failure_data is not None, data.error
    return 1 + len(retries), data.user_failure_data.description


def fill(bootstrap, config, topic="events"):
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1, config=config)
        producer = SyncProducer(cluster)
        for _ in range(5):
            producer.send(topic, 0, [NewRecord(VALUE, key=b"%d" % number) for number in range(10)])


def contents(broker):
    return {path: path.read_bytes() for path in sorted(broker.data_dir.glob("*-0/*"))}


RETAINED = {"segment.bytes": "20000", "retention.bytes": "20000"}
COMPACTED = {"segment.bytes": "20000", "cleanup.policy": "compact", "file.delete.delay.ms": "0"}


def test_retention_says_what_it_deleted(broker, millrace):
    fill(broker.bootstrap, RETAINED)
    metadata, _ = materialize(retention, millrace)
    assert metadata["segments deleted"].value > 0
    assert metadata["bytes deleted"].value > 10_000
    [row] = [record.data for record in metadata["partitions"].records]
    assert (row["topic"], row["partition"]) == ("events", 0)
    assert row["log start offset"] > 0
    segments = [record.data for record in metadata["segments by size"].records]
    assert len(segments) == metadata["segments deleted"].value
    assert sum(one["size bytes"] for one in segments) == metadata["bytes deleted"].value
    assert {one["reason"] for one in segments} == {"above retention.bytes"}
    assert metadata["segments by size, left out"].value == 0
    again, _ = materialize(retention, millrace)
    assert again["segments deleted"].value == 0


def test_compaction_says_what_it_rewrote(broker, millrace):
    fill(broker.bootstrap, COMPACTED)
    metadata, _ = materialize(compaction, millrace)
    assert metadata["segments rewritten"].value > 0
    assert metadata["bytes rewritten"].value == metadata["bytes before"].value > metadata["bytes after"].value
    assert metadata["records dropped"].value > 0
    segments = [record.data for record in metadata["segments by size"].records]
    assert {one["reason"] for one in segments} == {"dirty ratio above min.cleanable.dirty.ratio"}
    again, _ = materialize(compaction, millrace)
    assert again["segments rewritten"].value == 0


def test_what_is_not_due_is_compacted_where_the_run_says_so(broker, millrace):
    fill(broker.bootstrap, COMPACTED | {"min.cleanable.dirty.ratio": "1"})
    metadata, _ = materialize(compaction, millrace)
    assert metadata["segments rewritten"].value == 0
    metadata, _ = materialize(compaction, millrace, only_due=False)
    assert metadata["segments rewritten"].value > 0


@pytest.mark.broker_errors(r"log_cleaner: damaged-0: compaction failed: batch at offset 0, position 0: CRC-32C")
def test_a_log_that_cannot_be_compacted_fails_the_run_and_no_other_log(broker, millrace):
    for topic in ("users", "damaged"):
        fill(broker.bootstrap, COMPACTED, topic)
    damage(broker.data_dir / "damaged-0" / f"{0:020}.log")
    result, _ = run(compaction, millrace)
    [step] = result.filter_events(lambda event: event.is_step_failure)
    assert step.event_specific_data.user_failure_data.description.startswith(
        "1 of 2 logs could not be compacted: damaged-0: "
    )
    [materialization] = result.asset_materializations_for_node(compaction.op.name)
    assert materialization.metadata["records dropped"].value > 0


def test_a_sound_log_passes_the_recovery_check(broker, millrace):
    fill(broker.bootstrap, {})
    metadata, [check] = materialize(recovery_check, millrace)
    assert metadata["records"].value == 50
    assert metadata["segments"].value == 1
    assert metadata["findings"].value == 0
    assert (metadata["bytes to scrub"].value, metadata["damaged ranges"].value) == (metadata["bytes"].value, 0)
    [scrubber] = metadata["scrubbers"].records
    assert scrubber.data["directory"] == str(broker.data_dir)
    assert check.passed


def test_the_check_can_be_run_without_its_asset(broker, millrace):
    fill(broker.bootstrap, {})
    only_check = dg.AssetSelection.checks_for_assets(recovery_check)
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([recovery_check], selection=only_check, instance=instance, resources={"lake": millrace})
    assert [check.passed for check in result.get_asset_check_evaluations()] == [True]
    assert not result.asset_materializations_for_node(recovery_check.op.name)


@pytest.mark.broker_errors(r"segments\.damage_search: ")
def test_a_damaged_batch_fails_the_recovery_check_at_its_byte(broker, millrace):
    fill(broker.bootstrap, {"segment.bytes": "20000"})
    damage(broker.data_dir / "events-0" / f"{0:020}.log")
    metadata, [check] = materialize(recovery_check, millrace)
    assert (metadata["findings"].value, metadata["damaged ranges"].value) == (1, 1)
    segments = {record.data["base offset"]: record.data["findings"] for record in metadata["segments by size"].records}
    assert segments == {offset: int(offset == 0) for offset in segments}
    assert not check.passed
    assert f"{0:020}.log" in check.metadata["findings"].value


@pytest.mark.parametrize(
    ("asset", "config", "figure"),
    [
        (retention, RETAINED, "segments to delete"),
        (compaction, COMPACTED, "segments to rewrite"),
        (recovery_check, {}, "segments to read"),
    ],
)
def test_a_dry_run_is_an_observation_and_changes_nothing(broker_process, asset, config, figure):
    fill(broker_process.bootstrap, config)
    before = contents(broker_process)
    metadata = observe(asset, resource_of(broker_process))
    assert metadata[figure].value == len(metadata["segments by size"].records) > 0
    assert contents(broker_process) == before


@pytest.mark.parametrize("asset", [retention, compaction, recovery_check])
def test_a_run_may_choose_topics(broker, millrace, asset):
    for topic in ("logs-eu", "logs-us", "users"):
        fill(broker.bootstrap, COMPACTED, topic)
    metadata, _ = materialize(asset, millrace, topics=["logs-*"])
    assert {record.data["topic"] for record in metadata["partitions"].records} == {"logs-eu", "logs-us"}
    name = asset.op.name.removeprefix("lake__")
    action = {"recovery_check": "verify"}.get(name, name)
    sentence = f"the broker refuses {action}: topics: this broker has no log of 'user'"
    assert failure(asset, millrace, topics=["user", "users"]) == (1, sentence)


def test_the_token_opens_the_endpoint_and_is_shown_nowhere(tmp_path, monkeypatch, caplog, capfd):
    monkeypatch.delenv("MILLRACE_ADMIN_TOKEN", raising=False)
    with BrokerProcess(tmp_path / "broker", properties={"admin.token": TOKEN}) as broker:
        endpoint = f"the broker's admin endpoint {broker.admin_url}"
        way_on = (
            "MILLRACE_ADMIN_TOKEN must be what the broker's property admin.token says, or MILLRACE_ADMIN_TOKEN_FILE "
            "the file admin.token in the first data directory"
        )
        none = resource_of(broker, admin_token="")
        assert failure(retention, none) == (1, f"{endpoint} asks for its token; {way_on}")
        wrong = resource_of(broker, admin_token="secret?")
        assert failure(retention, wrong) == (1, f"{endpoint} refuses the token; {way_on}")
        attempts, sentence = failure(retention, resource_of(broker, admin_token="secret?\nX: y"))
        assert (attempts, "secret?" in sentence, "MILLRACE_ADMIN_TOKEN" in sentence) == (1, False, True)
        monkeypatch.setenv("MILLRACE_ADMIN_TOKEN", f"{TOKEN}\n")
        for asset in (retention, compaction, recovery_check):
            materialize(asset, none)
        assert TOKEN not in repr(resource_of(broker, admin_token=TOKEN))
    printed = "".join((caplog.text, *capfd.readouterr()))
    assert "secret?" not in printed
    assert TOKEN not in printed


@pytest.mark.parametrize("asset", [retention, compaction, recovery_check])
def test_a_broker_that_is_killed_fails_the_run_with_a_sentence_and_the_next_one_is_whole(broker_process, asset):
    broker, url = broker_process, broker_process.admin_url
    fill(broker.bootstrap, COMPACTED)
    broker.send_signal(signal.SIGSTOP)  # the request is on its way when the broker is killed
    killer = threading.Timer(1, broker.kill)
    killer.start()
    _, sentence = failure(asset, resource_of(broker))
    killer.join()
    assert sentence.startswith(f"{url}/maintenance/")
    assert sentence.endswith("is the broker up, and is this the address of its admin endpoint (MILLRACE_ADMIN_URL)?")
    broker.start()
    materialize(asset, resource_of(broker))


def test_a_broker_that_is_killed_while_it_compacts_completes_the_next_request(tmp_path):
    door = HeldDoor(tmp_path, ".cleaned")
    with cold_programs():
        process = BrokerProcess(tmp_path / "broker", properties=ON_REQUEST, program=door.program)
    with process as broker:
        fill(broker.bootstrap, COMPACTED)
        folder = broker.data_dir / "events-0"
        with ThreadPoolExecutor(1) as pool:
            failed = pool.submit(failure, compaction, resource_of(broker))
            while not list(folder.glob("*.cleaned")):
                assert not failed.done()
                time.sleep(0.001)
            broker.kill()
            _, sentence = failed.result()
        door.open()
        assert "/maintenance/compaction: " in sentence
        broker.start()
        assert not list(folder.glob("*.cleaned"))
        metadata, _ = materialize(compaction, resource_of(broker))
        assert metadata["bytes after"].value < metadata["bytes before"].value
        _, [check] = materialize(recovery_check, resource_of(broker))
        assert check.passed


def test_several_brokers_are_asked_and_their_partitions_reported_together(tmp_path):
    shared = {"admin.token.file": str(tmp_path / "shared")}
    with (
        BrokerProcess(tmp_path / "1", properties=shared) as first,
        BrokerProcess(tmp_path / "2", properties=shared) as second,
    ):
        for broker, topic in ((first, "one"), (second, "two")):
            with Cluster(broker.bootstrap) as cluster:
                Admin(cluster).create_topic(topic, 1)
        token = (tmp_path / "shared").read_text(encoding="utf-8").strip()
        both = AdminEndpoint(f"{first.admin_url}, {second.admin_url}", token)
        for topics, found in (([], ["one", "two"]), (["two"], ["two"]), (["t*", "one"], ["one", "two"])):
            report = both.verify(topics, dry_run=False)
            assert [one["topic"] for one in report["partitions"]] == found
            assert report["seconds"] >= 0
        with pytest.raises(ServiceUnreachableError, match="/maintenance/verify"):
            AdminEndpoint(f"{first.admin_url},http://127.0.0.1:1", token).verify([], dry_run=True)


@pytest.fixture
def broker_process(tmp_path):
    """A broker that writes nothing to the folders of topics by itself."""
    with cold_programs():
        process = BrokerProcess(
            tmp_path / "broker", properties=ON_REQUEST | {"log.flush.scheduler.interval.ms": "3600000"}
        )
    with process as broker:
        yield broker


def damage(log):
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)
