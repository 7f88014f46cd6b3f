"""Mirrored topics as assets: runs of Dagster mirror them, a sensor looks at their lag, and checks compare contents."""

import sys

import dagster as dg
import pytest

from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.client.mirrored_appends import MirroredAppend, append_mirrored
from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.declaration.cluster import read_state
from millrace_pipelines.defs import load_process, mirror_assets
from millrace_pipelines.defs.mirror_automation import mirror_sensors
from millrace_pipelines.defs.mirror_checks import NEWEST, WHOLE
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.topic_sensor import topics_sensor
from millrace_pipelines.mirror.own_target import settings_into
from millrace_pipelines.mirror.service import MirrorService
from millrace_support.declared import cluster_of, definitions_of, ticked
from millrace_support.mirrored_records import write

PARTITIONS = 2
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
ALL = dg.AssetKey(["lake", "mirrored_topics"])


class Mirrored:
    """Two brokers and what mirrors the one into the other, by Dagster.

    Args:
        source: The source's broker.
        target: The target's broker.
        folder: For the settings and the state.
        way: How topics are mirrored.
        name: The source's name, another one for each test.
    """

    def __init__(self, source, target, folder, way, name):
        self.source, self.target, self.name = source.bootstrap, target.bootstrap, name
        self.folder, self.state = folder, folder / "state"
        self.runs, self.limit = "dagster", 1_000_000
        self.instance = dg.DagsterInstance.ephemeral()
        self.millrace = MillraceResource(
            bootstrap=self.target, admin_url="", warehouse_dir="/nowhere", schema_dir="", master=""
        )
        (folder / "mirror.toml").write_text(
            f'topics = ["{name}.*"]\nway = "{way}"\ntopics_interval_ms = 200\n'
            f'[[sources]]\nname = "{name}"\nbootstrap = "{self.source}"\n'
        )

    def topic(self, which):
        """The name of a topic at the source."""
        return f"{self.name}-{which}"

    def key(self, which):
        return dg.AssetKey(["lake", "mirror", self.there(which)])

    def there(self, which):
        """The name of a topic at the target."""
        return f"{self.name}.{self.topic(which)}"

    def create(self, which, partitions=PARTITIONS):
        with Cluster(self.source) as cluster:
            Admin(cluster).create_topic(self.topic(which), partitions)

    def write(self, which, count=10, seed=1):
        write(self.source, self.topic(which), PARTITIONS, count, seed)
        return 5 * count  # with each codec

    def cluster(self):
        mirror = f"{{config: mirror.toml, runs: {self.runs}, max_checked_records: {self.limit}}}"
        declared = f"cluster: lake\nundeclared_topics: load\nmirror: {mirror}"
        known = read_state(self.state)
        return cluster_of(declared, *known.topics, directory=str(self.folder), mirrored=known.mirrored)

    def look(self):
        """Runs a tick of the sensor of the topics, which learns what is mirrored."""
        ticked(topics_sensor(self.cluster(), self.state), self.instance, self.millrace)

    def run(self, *whats, **config):
        """Mirrors topics, all of them by default; returns the result of the run."""
        definitions = definitions_of(self.cluster(), self.millrace)
        keys = [self.key(one) for one in whats] or [ALL, *(self.key(one) for one in self.known())]
        selection = dg.AssetSelection.assets(*keys).without_checks()
        return self._execute(
            definitions, selection, {"ops": {"lake_mirror_topics": {"config": config}}} if config else {}
        )

    def check(self, which, name):
        """Makes a check of a topic; returns its evaluation."""
        definitions = definitions_of(self.cluster(), self.millrace)
        selection = dg.AssetSelection.checks(dg.AssetCheckKey(self.key(which), name))
        [found] = self._execute(definitions, selection, {}).get_asset_check_evaluations()
        return found

    def known(self):
        beginning = f"{self.name}/{self.name}-"
        return [
            key.removeprefix(beginning) for key in read_state(self.state).mirrored.values() if key.startswith(beginning)
        ]

    def _execute(self, definitions, selection, config):
        merged = dg.Definitions.merge(definitions, dg.Definitions(jobs=[dg.define_asset_job("chosen", selection)]))
        job = merged.resolve_job_def("chosen")
        return job.execute_in_process(instance=self.instance, run_config=config, raise_on_error=False)


def shown(result):
    """The metadata of each topic that a run has materialized or observed, by key."""
    events = [*result.get_asset_materialization_events(), *result.get_asset_observation_events()]
    found = [
        one.asset_observation_data.asset_observation if one.is_asset_observation else one.materialization
        for one in events
    ]
    return {
        one.asset_key: {label: getattr(value, "records", value.value) for label, value in one.metadata.items()}
        for one in found
    }


def materialized(result):
    return {one.asset_key for one in result.get_asset_materialization_events()}


def sentence(result):
    [failure] = [one.step_failure_data for one in result.all_events if one.is_step_failure]
    return failure.user_failure_data.description


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    with (
        BrokerProcess(tmp_path_factory.mktemp("source"), properties=QUICK) as source,
        BrokerProcess(tmp_path_factory.mktemp("target"), properties=QUICK) as target,
    ):
        yield source, target


@pytest.fixture(params=["follow", "copy"])
def mirrored(request, brokers, tmp_path):
    name = f"{request.param}{request.node.originalname.removeprefix('test_')[:12]}".replace("_", "")
    one = Mirrored(*brokers, tmp_path, request.param, name)
    yield one
    one.instance.dispose()


def test_topics_become_assets_that_runs_mirror(mirrored):
    mirrored.create("a")
    count = mirrored.write("a")
    first = mirrored.run()
    assert first.success
    assert materialized(first) == {ALL}
    assert shown(first)[ALL]["records"] == count
    [row] = shown(first)[ALL]["topics"]
    assert (row.data["topic"], row.data["records"], row.data["lag"]) == (mirrored.there("a"), count, 0)
    mirrored.look()
    assert mirrored.known() == ["a"]
    assert not [topic for topic in read_state(mirrored.state).topics if topic.startswith("__")], "the mirror's own"

    count = mirrored.write("a", seed=2)
    second = mirrored.run("a")
    assert materialized(second) == {mirrored.key("a")}
    told = shown(second)[mirrored.key("a")]
    assert (told["records"], told["lag"], told["state"]) == (count, 0, "mirroring")
    assert told["source"] == f"{mirrored.name}/{mirrored.topic('a')}"
    assert told["records per second"] > 0
    third = mirrored.run("a")
    assert third.success
    assert materialized(third) == set(), "nothing new updates nothing downstream"
    assert shown(third)[mirrored.key("a")]["lag"] == 0


def test_a_topic_that_stops_fails_with_its_sentence_and_the_others_go_on(mirrored):
    with Cluster(mirrored.target) as cluster:
        Admin(cluster).create_topic(mirrored.there("b"), PARTITIONS)
    for which in "ab":
        mirrored.create(which)
        mirrored.write(which)
    assert not mirrored.run().success
    mirrored.look()
    assert sorted(mirrored.known()) == ["a", "b"]

    mirrored.write("a", seed=2)
    result = mirrored.run("a", "b")
    assert not result.success
    assert materialized(result) == {mirrored.key("a")}
    assert mirrored.there("b") in sentence(result)
    assert not [one for one in result.all_events if one.is_step_up_for_retry], "no retry helps"
    check = mirrored.check("b", NEWEST)
    assert not check.passed
    assert mirrored.there("b") in check.description


def test_checks_compare_what_was_mirrored_since_the_last_one(mirrored):
    mirrored.create("a")
    count = mirrored.write("a")
    mirrored.run()
    mirrored.look()
    for records in (count, 0):
        check = mirrored.check("a", NEWEST)
        assert (check.passed, check.metadata["records"].value) == (True, records), check.metadata
    more = mirrored.write("a", 4, seed=2)
    mirrored.run("a")
    check = mirrored.check("a", NEWEST)
    assert (check.passed, check.metadata["records"].value) == (True, more), check.metadata
    whole = mirrored.check("a", WHOLE)
    assert (whole.passed, whole.metadata["records"].value) == (True, count + more)


def test_a_check_compares_the_newest_records_up_to_its_bound(mirrored):
    mirrored.create("a")
    mirrored.write("a")
    mirrored.run()
    mirrored.look()
    mirrored.limit = 5
    check = mirrored.check("a", NEWEST)
    assert check.passed
    assert check.metadata["records"].value in range(1, PARTITIONS * 5 + 1)
    assert check.metadata["offsets left out"].value > 0


def test_what_differs_is_named_until_it_is_mended(mirrored):
    for which in "ab":
        mirrored.create(which)
        mirrored.write(which)
    mirrored.run()
    mirrored.look()
    assert mirrored.check("a", NEWEST).passed
    plant_difference(mirrored)
    mirrored.run("a")
    for _ in range(2):
        check = mirrored.check("a", NEWEST)
        assert not check.passed
        assert check.metadata["differences"].value
        assert f"{mirrored.name}/{mirrored.topic('a')}-0: " in str(check.metadata["findings"].value)
    assert not mirrored.check("a", WHOLE).passed


def plant_difference(mirrored):
    """Has the target's partition 0 of topic a go on with other records than the source's."""
    target = mirrored.there("a")
    if "follow" in mirrored.name:
        mirrored.write("b", seed=3)
        with Cluster(mirrored.source) as source, Cluster(mirrored.target) as cluster:
            end = SimpleConsumer(cluster).latest(target, 0)
            records = bytes(SimpleConsumer(source).fetch(mirrored.topic("b"), 0, end).records)
            assert append_mirrored(cluster, [MirroredAppend(target, 0, end, records)])[target, 0].error is None
    else:
        write(mirrored.target, target, 1, 1, seed=3)
    mirrored.write("a", seed=4)


def test_what_a_service_mirrors_is_observed_and_not_copied(mirrored):
    mirrored.runs = "service"
    mirrored.create("a")

    def serve():
        with MirrorService(settings_into(str(mirrored.folder / "mirror.toml"), mirrored.target)) as service:
            service.run(once=True)

    def observed(cursor=None):
        [sensor] = mirror_sensors(mirrored.cluster())
        result = ticked(sensor, mirrored.instance, mirrored.millrace, cursor)
        return {one.asset_key: one.metadata["lag"].value for one in result.asset_events}, result

    serve()
    mirrored.look()
    assert (
        not definitions_of(mirrored.cluster(), mirrored.millrace)
        .resolve_asset_graph()
        .get(mirrored.key("a"))
        .is_executable
    )
    count = mirrored.write("a")
    behind, seen = observed()
    assert behind == {mirrored.key("a"): count}
    assert seen.skip_reason.skip_message == "1 topic, 1 behind"
    assert observed(seen.cursor)[0] == behind, "looking copies nothing"
    serve()
    caught_up, seen = observed(seen.cursor)
    assert caught_up == {mirrored.key("a"): 0}
    assert observed(seen.cursor)[0] == {}
    assert mirrored.check("a", NEWEST).passed


def test_a_process_that_ends_early_fails_the_run_in_words(brokers, tmp_path, monkeypatch):
    mirrored = Mirrored(*brokers, tmp_path, "follow", "killed")
    monkeypatch.setattr(mirror_assets, "COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
    assert sentence(mirrored.run()) == (
        "the process of the mirror ended with exit status 3 without a report; another run goes on from there"
    )


def test_a_source_that_is_away_fails_the_run_once_its_time_is_over(brokers, tmp_path, monkeypatch):
    monkeypatch.setattr(load_process, "MAX_RETRIES", 0)
    mirrored = Mirrored(*brokers, tmp_path, "follow", "away")
    mirrored.create("a")
    mirrored.run()
    mirrored.look()
    file = tmp_path / "mirror.toml"
    file.write_text(file.read_text().replace(mirrored.source, f"127.0.0.1:{free_port()}"))
    result = mirrored.run("a", max_seconds=1)
    assert not result.success
    assert "127.0.0.1" in sentence(result)
