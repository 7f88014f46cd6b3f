"""What Dagster defines for a mirror: its assets and their lineage, schedules and sensors, and faults in its file."""

from itertools import pairwise

import dagster as dg
import pytest
from pydantic import ValidationError

from millrace.errors import InvalidConfigError
from millrace_pipelines.declaration.attributes import ClusterDeclaration
from millrace_pipelines.declaration.cluster import State, read_state, write_state
from millrace_pipelines.definitions import go_on_with_project
from millrace_pipelines.defs.mirror_assets import lag_metadata, stop_reasons
from millrace_pipelines.defs.mirror_checks import NEWEST, WHOLE
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.last_good import noted_fault
from millrace_pipelines.mirror.lags import TopicLag
from millrace_pipelines.mirror.own_target import settings_into, target_options
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import State as Stage
from millrace_pipelines.mirror.states import TopicState
from millrace_pipelines.project import make_project, write_definitions
from millrace_support.declared import cluster_of, definitions_of

NOWHERE = MillraceResource(bootstrap="127.0.0.1:1", admin_url="", warehouse_dir="/nowhere", schema_dir="", master="")
MIRRORED = {"east.orders": "east/orders", "east.or-ders": "east/or-ders"}
TABLE, TOPIC, MIRROR, SOURCE = (
    dg.AssetKey(key)
    for key in (
        ["lake", "table", "east.orders"],
        ["lake", "topic", "east.orders"],
        ["lake", "mirror", "east.orders"],
        ["east", "topic", "orders"],
    )
)
DECLARED = "cluster: lake\nundeclared_topics: load\nmirror: {{config: mirror.toml, runs: {}}}"
FILE = '[[sources]]\nname = "east"\nbootstrap = "127.0.0.1:2"\ntopics = ["orders"]\n'


def repository(runs, mirrored=MIRRORED):
    cluster = cluster_of(DECLARED.format(runs), *mirrored, mirrored=mirrored)
    return definitions_of(cluster, NOWHERE).get_repository_def()


@pytest.mark.parametrize("runs", ["dagster", "service"])
def test_a_mirrored_topic_stands_between_its_source_and_its_table(runs):
    graph = repository(runs).asset_graph
    lineage = [TABLE, TOPIC, MIRROR, SOURCE]
    for below, above in pairwise(lineage):
        assert graph.get(below).parent_keys == {above}
    assert graph.get(MIRROR).is_executable == (runs == "dagster")
    names = {one.name for one in graph.asset_check_keys if one.asset_key == MIRROR}
    assert names == {NEWEST, WHOLE}


def test_a_service_is_only_looked_at():
    running = {"dagster": {"mirror_lake", "hourly_mirror_checks_lake"}, "service": {"hourly_mirror_checks_lake"}}
    for runs, expected in running.items():
        found = repository(runs)
        schedules = {one.name: one for one in found.schedule_defs if "mirror" in one.name}
        assert schedules.keys() == expected
        assert {one.default_status for one in schedules.values()} == {dg.DefaultScheduleStatus.RUNNING}
        [sensor] = [one for one in found.sensor_defs if "mirror" in one.name]
        assert (sensor.name, sensor.default_status) == ("mirror_lag_lake", dg.DefaultSensorStatus.RUNNING)


def test_a_mirror_that_has_found_no_topic_yet_can_be_run():
    found = repository("dagster", {})
    assert found.asset_graph.get(dg.AssetKey(["lake", "mirrored_topics"])).is_executable
    assert [one.name for one in found.schedule_defs if "mirror" in one.name] == ["mirror_lake"]


def test_without_a_mirror_there_is_nothing_of_one():
    found = definitions_of(cluster_of("cluster: lake\nundeclared_topics: load", "a"), NOWHERE).get_repository_def()
    assert not [key for key in found.asset_graph.get_all_asset_keys() if "mirror" in key.to_user_string()]


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"config": "a", "schedule": "0 * * * *"}, "a schedule is for runs: dagster"),
        ({"config": "a", "runs": "dagstar"}, "'dagster' or 'service'"),
        ({"runs": "dagster"}, "Field required"),
    ],
)
def test_what_is_declared_wrongly_is_refused(declared, words):
    with pytest.raises(ValidationError, match=words):
        ClusterDeclaration.model_validate({"mirror": declared})


def test_what_is_mirrored_is_kept_in_the_state(tmp_path):
    state = State(frozenset(MIRRORED), mirrored=MIRRORED)
    write_state(tmp_path / "state", state)
    assert read_state(tmp_path / "state") == state


def test_the_target_is_the_cluster_unless_the_file_names_another(tmp_path):
    file = tmp_path / "mirror.toml"
    file.write_text(FILE)
    assert settings_into(str(file), "127.0.0.1:3").target.bootstrap == "127.0.0.1:3"
    assert target_options(str(file), "127.0.0.1:3", "a") == {
        "target": {"bootstrap": "127.0.0.1:3", "client_config": "a"}
    }
    file.write_text(FILE + '[target]\nbootstrap = "127.0.0.1:4"\n')
    assert settings_into(str(file), "127.0.0.1:3").target.bootstrap == "127.0.0.1:4"
    file.write_text(FILE + "moode = 1\n")
    with pytest.raises(InvalidConfigError, match=f"{file}, line 5: .*moode"):
        settings_into(str(file))


def test_options_are_spelled_as_a_configuration_spells_them():
    state = TopicState(source="east", topic="a", target_topic="east.a", way=Way.COPY)
    stopped = TopicLag(state=state.stopped("was recreated; --accept-recreated-topic goes on"), lag=None)
    assert stop_reasons(stopped, ["a-0 was cut; --accept-truncated-log goes on"]) == [
        "was recreated; `accept_recreated_topic: true` goes on",
        "a-0 was cut; `accept_truncated_log: true` goes on",
    ]
    assert stopped.state.state is Stage.STOPPED
    assert stop_reasons(TopicLag(state=state, lag=0)) == []


def test_a_fault_in_the_file_is_named_and_the_definitions_of_before_go_on(tmp_path):
    make_project(str(tmp_path))
    attributes = "".join(f"  {line}\n" for line in DECLARED.format("dagster").splitlines())
    declared = f"type: millrace_pipelines.MillraceComponent\nattributes:\n{attributes}"
    write_definitions(str(tmp_path), "cluster/defs.yaml", declared)
    write_definitions(str(tmp_path), "cluster/mirror.toml", FILE)
    schedules = {one.name for one in go_on_with_project(tmp_path).get_repository_def().schedule_defs}
    assert "mirror_lake" in schedules
    file = tmp_path / "defs" / "cluster" / "mirror.toml"
    file.write_text(FILE + "moode = 1\n")
    assert {one.name for one in go_on_with_project(tmp_path).get_repository_def().schedule_defs} == schedules
    assert f"{file}, line 5: sources[0].moode: there is no such setting" in noted_fault(tmp_path)


@pytest.mark.parametrize(("held_back", "expected"), [(0, {}), (7, {"held back": 7})])
def test_what_an_open_transaction_holds_back_is_told_beside_the_lag(held_back, expected):
    state = TopicState(source="east", topic="orders", target_topic="east.orders", way=Way.COPY)
    told = lag_metadata(TopicLag(state=state, lag=0, held_back=held_back))
    assert told == {"lag": 0, **expected, "way": "copy", "state": "mirroring", "source": "east/orders"}
