"""`millrace mirror switch-back`: topics, writers and groups move over and back; each record is read once."""

from contextlib import ExitStack
from itertools import count

import pytest

from millrace import Producer
from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.mirror import switch_back, switch_over
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import State, States
from millrace_support.mirrored_groups import read_as_group
from millrace_support.mirrors_there_and_back import PARTITIONS, Travellers, both_ways, names_of
from millrace_support.running_mirrors import QUICK
from millrace_support.waiting import until

WAYS = [(Way.FOLLOW, False), (Way.FOLLOW, True), (Way.COPY, False), (Way.COPY, True)]


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    with ExitStack() as stack:
        yield [
            stack.enter_context(BrokerProcess(tmp_path_factory.mktemp(one), properties=QUICK)).bootstrap
            for one in ("source", "target")
        ]


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(switch_over, "STILL_S", 0.2)


@pytest.fixture(params=WAYS, ids=lambda one: f"{one[0]}-{'same' if one[1] else 'other'}-name")
def ways(request, sides):
    way, keep_names = request.param
    return both_ways(*sides, way, keep_names=keep_names)


def write(bootstrap, topic, values):
    with Producer(broker_list=bootstrap) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=value % PARTITIONS)


def values(bootstrap, topic):
    committed = IsolationLevel.READ_COMMITTED
    with SimpleConsumer(bootstrap) as consumer:
        return sorted(
            int(one.value)
            for each in range(PARTITIONS)
            for one in consumer.messages(topic, each, 0, isolation=committed)
        )


def state_at(bootstrap, key):
    with Cluster(bootstrap) as cluster:
        return States(cluster).read()[key]


@pytest.mark.soak(rounds=3, soak_rounds=50)
def test_a_group_that_moves_with_its_topic_reads_each_record_once(ways, rounds):
    Travellers(*ways, seed=7).travel(rounds)


def gone_over(over, back):
    """Switches over without the source, which has had more then; writes on both sides."""
    home, abroad = names_of(over)
    write(over.source, home, range(6))
    assert over.once() == []
    write(over.source, home, range(6, 10))
    told = over.command("switch-over", "--source-is-gone")
    assert told.exit_code == 0, told.exception
    write(over.target, abroad, range(100, 104))
    return home, abroad


def test_a_log_with_more_than_was_mirrored_is_not_followed_on(sides):
    over, back = both_ways(*sides, Way.FOLLOW)
    home, abroad = gone_over(over, back)
    refused = back.command("switch-back")
    assert refused.exit_code == 1
    for partition, begin, end, records in ((0, 2, 3, 2), (1, 2, 2, 1), (2, 2, 2, 1)):
        what = f"{records} records" if records > 1 else "1 record"
        assert f"{home}-{partition} has {what} at offsets {begin} to {end}" in str(refused.exception)
    assert "--recreate" in str(refused.exception)
    assert back.command("switch-back", "--recreate").exit_code == 0
    assert back.once() == []
    until(lambda: back.once() == [] and values(over.source, home), [*range(6), *range(100, 104)].__eq__)
    assert state_at(over.source, f"{back.name}/{abroad}").way is Way.FOLLOW


def test_a_copy_goes_on_behind_what_was_not_mirrored(sides):
    over, back = both_ways(*sides, Way.COPY)
    home, _ = gone_over(over, back)
    told = back.command("switch-back")
    assert told.exit_code == 0, told.exception
    assert f"{home}-0 has 2 records at offsets 2 to 3" in told.stderr
    assert back.once() == []
    assert values(over.source, home) == [*range(10), *range(100, 104)]


def check_wrong_way(roles, topic):
    """A switch-back has the clusters the other way round than the switch-over before it."""
    told = roles.command("switch-back")
    assert (told.exit_code, told.stdout) == (1, "")
    assert f"{topic} was switched over from {roles.name} to the target: to switch it back" in str(told.exception)


def test_it_is_done_once(ways):
    over, back = ways
    home, abroad = names_of(over)
    write(over.source, home, range(6))
    over.once()
    assert back.command("switch-back").stdout.splitlines()[1:] == []
    assert over.command("switch-over").exit_code == 0
    check_wrong_way(over, home)
    assert f"{back.name}/{abroad}" in back.command("switch-back").stdout
    assert back.command("switch-back").stdout.splitlines()[1:] == []
    back.once()
    assert back.command("switch-over").exit_code == 0
    check_wrong_way(back, abroad)  # it is at home
    assert f"{over.name}/{home}" in over.command("switch-back").stdout


def test_a_partition_that_nobody_writes_meanwhile_is_mirrored_on(ways):
    over, back = ways
    home, abroad = names_of(over)
    write(over.source, home, range(3))
    assert over.once() == []
    for way, comes_back in ((over, back), (back, over)):
        assert way.command("switch-over").exit_code == 0
        assert comes_back.command("switch-back").exit_code == 0
        assert comes_back.once() == []
    write(over.source, home, range(3, 6))
    assert over.once() == []
    assert values(over.target, abroad) == list(range(6))


class KilledError(BaseException):
    """Stands for the end of the process."""


STEPS = [(Way.FOLLOW, step) for step in range(4)] + [(Way.COPY, step) for step in range(8)]


@pytest.mark.parametrize(("way", "step"), STEPS)
def test_the_same_command_completes_what_was_cut_off_at_any_step(sides, way, step, monkeypatch):
    over, back = both_ways(*sides, way)
    home, abroad = names_of(over)
    write(over.source, home, range(6))
    assert list(read_as_group(over.source, home, home, 4))
    over.once()
    assert over.command("switch-over").exit_code == 0
    read = [number for _, number in read_as_group(over.target, home, abroad, 1)]
    steps = count()

    def killing(function):
        def called(*arguments, **named):
            if next(steps) == step:
                raise KilledError
            return function(*arguments, **named)

        return called

    with monkeypatch.context() as patch:
        for name in ("Configs", "create_offset_map_topic", "Groups", "map_records", "plan_marks"):
            patch.setattr(switch_back, name, killing(getattr(switch_back, name)))
        patch.setattr(States, "write", killing(States.write))
        with pytest.raises(KilledError):
            back.command("switch-back")
    assert back.command("switch-over").stdout.splitlines()[1:] == []  # it is none of its own to complete
    assert back.command("switch-back").stdout.splitlines()[1:] != []
    write(over.target, abroad, range(6, 9))
    assert back.once() == []
    assert back.command("switch-over").exit_code == 0
    assert values(over.source, home) == list(range(9))
    read += [number for _, number in read_as_group(over.source, home, home, 4)]
    assert len({*read}) == 5


def test_no_record_comes_home_while_both_mirrors_run(ways):
    over, back = ways
    home, abroad = names_of(over)
    all_of_it = [one._replace(topics=f".*{home}") for one in ways]
    write(over.source, home, range(6))
    over.once()
    assert over.command("switch-over").exit_code == 0
    assert back.command("switch-back").exit_code == 0
    write(over.target, abroad, range(6, 12))
    with all_of_it[0].running(), all_of_it[1].running():
        until(lambda: values(over.source, home), list(range(12)).__eq__)
        write(over.target, abroad, range(12, 18))
        until(lambda: values(over.source, home), list(range(18)).__eq__)
    assert values(over.target, abroad) == list(range(18))
    for bootstrap, expected in ((over.source, home), (over.target, abroad)):
        with Cluster(bootstrap) as cluster:
            assert {one for one in Admin(cluster).topics() if home in one} == {expected}
    assert state_at(over.target, f"{over.name}/{home}").state is State.SWITCHED
