"""Asset keys: one for each topic, whatever other topics there are, and names that Dagster can tell apart."""

import re
import zlib
from itertools import product

import dagster as dg
import pytest

from millrace_pipelines.declaration.cluster import asset_keys, step_key, under_own_keys

SHORT = ["".join(name) for length in range(1, 6) for name in product("a_.-", repeat=length)]
MARKED = [f"{name}__{marks}" for name in SHORT[:84] for marks in ("0", "1", "2", "00", "12", "1__0")]


def with_checksum(name):
    return f"{name}_{zlib.crc32(name.encode()):08x}"


TAKEN = [with_checksum("a.b"), with_checksum(with_checksum("a.b")), "a_1.5"]
NAMES = [*SHORT, *MARKED, *TAKEN]


@pytest.mark.parametrize("kind", ["topic", "table", "dead_letters", "reload"])
def test_no_two_topics_share_a_key_or_a_name_that_dagster_derives(kind):
    keys = {getattr(asset_keys("lake", name), kind) for name in NAMES}
    identifiers = {step_key(getattr(asset_keys("lake", name), kind)).to_python_identifier() for name in NAMES}
    assert len(keys) == len(identifiers) == len(set(NAMES))


def test_a_key_ends_with_the_name_of_the_topic():
    others = set(NAMES) - {with_checksum("a.b"), with_checksum(with_checksum("a.b"))}
    assert all(asset_keys("lake", name).table.path == ["lake", "table", name] for name in others)


def test_keys_with_a_checksum_meet_no_topic_of_that_name():
    kept = [asset_keys("lake", name, with_checksum=True).table for name in SHORT]
    assert kept[SHORT.index("a.-")].path == ["lake", "table", with_checksum("a.-")]
    others = [asset_keys("lake", with_checksum(name)).table for name in SHORT]
    assert not {*kept} & {*others}


def test_a_name_without_dots_and_dashes_stays_in_the_names_of_steps():
    assert step_key(asset_keys("lake", "shop_orders").table).path == ["lake", "table", "shop_orders"]
    [name] = {step_key(asset_keys("lake", "shop.orders").table).path[-1]}
    assert re.fullmatch("[A-Za-z0-9_]+", name)


def test_one_step_makes_assets_of_topics_whose_names_dagster_holds_equal():
    keys = [asset_keys("lake", name) for name in ("a.b", "a-b", "a_b")]

    @dg.multi_asset(
        specs=[dg.AssetSpec(step_key(each.table), deps=[step_key(each.topic)]) for each in keys], can_subset=True
    )
    def made(context):
        yield from (dg.MaterializeResult(asset_key=key) for key in context.selected_asset_keys)

    given = under_own_keys(made, [key for each in keys for key in each])
    defs = dg.Definitions(assets=[given, *(dg.AssetSpec(each.topic) for each in keys)])
    graph = defs.resolve_asset_graph()
    assert {each.table: graph.get(each.table).parent_keys for each in keys} == {
        each.table: {each.topic} for each in keys
    }
    with dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_implicit_global_asset_job_def()
        run = job.get_subset(asset_selection={keys[0].table, keys[2].table})
        assert run.execute_in_process(instance=instance).success
        assert {key.path[-1] for key in instance.all_asset_keys()} == {"a.b", "a_b"}
