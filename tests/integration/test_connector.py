"""The ConsumerConnector against a real ZooKeeper and real brokers: streams, filters, offsets, fencing, commands."""

import json
from collections import Counter
from contextlib import suppress

import pytest

from millrace.client import Admin, Cluster, Groups, SyncProducer
from millrace.client.consumer import (
    ConsumerConnector,
    ConsumerIdTakenError,
    ConsumerTimeoutError,
    GroupHasMembersError,
    OwnershipLostError,
    Partition,
    RebalanceFailedError,
)
from millrace.client.consumer.group_offsets import describe_zookeeper_group, list_zookeeper_groups
from millrace.errors import (
    DamagedNodeError,
    GroupIdNotFoundError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    ZooKeeperError,
)
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.zk import paths
from millrace.zk.operations import Create, Delete, SetData
from millrace_ops.cli.app import app
from millrace_support.await_brokers import await_brokers
from millrace_support.command_runner import CommandRunner
from millrace_support.connector_streams import BOUNDS, SESSION_TIMEOUT_MS, all_at, fill, offsets_of, read, stream_of
from millrace_support.zookeeper_sessions import started

FEW_PARTITIONS = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}


@pytest.fixture(scope="module")
def connect(zookeeper):
    return f"{zookeeper.address}/connector"


@pytest.fixture(scope="module")
def brokers(connect, tmp_path_factory):
    folder = tmp_path_factory.mktemp("brokers")
    with (
        BrokerProcess(folder / "1", zookeeper=connect, broker_id=1, properties=FEW_PARTITIONS) as first,
        BrokerProcess(folder / "2", zookeeper=connect, broker_id=2, properties=FEW_PARTITIONS) as second,
    ):
        await_brokers({1, 2}, first, second)
        yield first, second


@pytest.fixture(scope="module")
def cluster(brokers):
    with Cluster(brokers[0].bootstrap) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def session(connect, brokers):
    with started(connect, session_timeout_ms=SESSION_TIMEOUT_MS) as session:
        yield session


@pytest.fixture
def topic(cluster, request):
    name = request.node.name.replace("[", "_").replace("]", "")[:60]
    Admin(cluster).create_topic(name, 4)
    return name


@pytest.fixture
def join(connect, topic):
    connectors = []

    def joined(**properties):
        given = {name.replace("_", "."): value for name, value in properties.items()}
        defaults = {"group.id": topic, "zookeeper.connect": connect, "auto.offset.reset": "smallest"}
        connectors.append(ConsumerConnector(defaults | BOUNDS | given))
        return connectors[-1]

    yield joined
    for connector in connectors:
        connector.shutdown()


def read_patiently(stream, count):
    """Does what `read` does, and goes on where nothing comes for a while."""
    found = []
    while len(found) < count:
        with suppress(ConsumerTimeoutError):
            found.append(next(stream))
    return found


def run(*arguments):
    return CommandRunner().invoke(app, arguments)


def test_partitions_begin_at_the_applications_positions(join, cluster, topic, session, connect):
    """The offsets of the group are ignored, and the next commit replaces them, even where no message is left."""
    fill(cluster, topic)
    properties = BOUNDS | {"group.id": topic, "zookeeper.connect": connect, "auto.offset.reset": "error"}
    with join() as former:
        read(stream_of(former, topic), 20)
        former.commit_offsets()
    kept = {Partition(topic, 0): 2, Partition(topic, 1): 5, Partition(topic, 2): 0}

    def positions(partitions):
        return {one: kept[one] for one in kept.keys() & set(partitions)}

    with ConsumerConnector(properties, positions=positions) as connector:
        messages = read(stream_of(connector, topic), 8)
        connector.commit_offsets()
    handed = Counter(one.partition for one in messages)
    assert (handed, min(one.offset for one in messages if one.partition == 0)) == ({0: 3, 2: 5}, 2)
    assert offsets_of(session, topic) == all_at(topic, 5)
    behind = {Partition(topic, number): 1 for number in range(4)}
    with ConsumerConnector(properties, positions=lambda _: behind) as connector:
        connector.create_message_streams({topic: 1})
        connector.commit_offsets()
    assert offsets_of(session, topic) == behind


def test_a_damaged_offset_is_told(join, cluster, topic, session):
    SyncProducer(cluster).send(topic, 2, [NewRecord(b"%d" % number) for number in range(5)])
    damaged = paths.consumer_offset(topic, topic, 2)
    session.ensure(paths.consumer_offsets(topic, topic))
    session.transact([Create(damaged, b"two")])
    with (
        join() as connector,
        pytest.raises(DamagedNodeError, match=rf"the offset of {topic}-2 is b'two', not a number"),
    ):
        connector.create_message_streams({topic: 1})
    session.transact([SetData(damaged, b"3")])
    (stream,) = join().create_message_streams({topic: 1})[topic]
    assert next(stream).value == b"3"


def test_streams_of_one_member_share_the_partitions(cluster, topic, join, session):
    fill(cluster, topic)
    connector = join()
    streams = connector.create_message_streams({topic: 2})[topic]
    messages = [read(stream, 10) for stream in streams]
    assert [len({message.partition for message in each}) for each in messages] == [2, 2]
    assert {(one.partition, one.value) for each in messages for one in each} == {
        (number, b"%d-%d" % (number, one)) for number in range(4) for one in range(5)
    }
    first = messages[0][0]
    assert (first.topic, first.offset, first.key, first.headers) == (topic, 0, b"k", (("h", b"1"),))
    assert first.timestamp_ms > 0
    with pytest.raises(InvalidRequestError):
        connector.create_message_streams({topic: 1})
    group = describe_zookeeper_group(session, topic)
    assert group.members == (connector.member_name,)
    assert set(group.owners.values()) == {f"{connector.member_name}-0", f"{connector.member_name}-1"}
    registration = json.loads(session.get(paths.consumer_id(topic, connector.member_name)))
    assert registration.pop("timestamp").isdecimal()
    assert registration == {"version": 1, "subscription": {topic: 2}, "pattern": "static"}


def test_members_share_and_go_on_where_the_other_left(cluster, topic, join, session):
    fill(cluster, topic)
    first, second = join(), join(consumer_timeout_ms="500")
    stream = stream_of(first, topic)
    seen = read(stream, 20)
    first.commit_offsets()
    other = stream_of(second, topic)
    assert len(second.owned_partitions()) == 2
    assert not first.owned_partitions() & second.owned_partitions()
    with pytest.raises(ConsumerTimeoutError):
        next(other)
    first.shutdown()
    assert list(stream) == []
    fill(cluster, topic)
    seen += read_patiently(other, 20)
    assert len({(one.partition, one.offset) for one in seen}) == 40
    second.shutdown()
    assert offsets_of(session, topic) == all_at(topic, 10)
    assert describe_zookeeper_group(session, topic).members == ()


def test_a_filter_takes_topics_in_that_come_later(cluster, topic, join, session):
    fill(cluster, topic)
    connector = join()
    (stream,) = connector.create_message_streams_by_filter(whitelist=f"nothing, {topic}.*")
    assert {one.topic for one in read(stream, 20)} == {topic}
    Admin(cluster).create_topic(f"{topic}_later", 1)
    fill(cluster, f"{topic}_later", partitions=1)
    assert {one.topic for one in read(stream, 5)} == {f"{topic}_later"}
    registration = json.loads(session.get(paths.consumer_id(topic, connector.member_name)))
    assert registration["pattern"] == "white_list"
    assert registration["subscription"] == {f"nothing|{topic}.*": 1}


def test_a_blacklist_takes_the_rest(cluster, topic, join):
    fill(cluster, topic)
    (stream,) = join().create_message_streams_by_filter(blacklist=f"(?!{topic}$).*")
    assert {one.topic for one in read(stream, 20)} == {topic}


def test_without_auto_commit_only_commits_are_kept(cluster, topic, join, session):
    fill(cluster, topic)
    connector = join(auto_commit_enable="false")
    stream = stream_of(connector, topic)
    read(stream, 20)
    connector.commit_offsets()
    fill(cluster, topic)
    read(stream, 20)
    connector.shutdown()
    assert offsets_of(session, topic) == all_at(topic, 5)


def test_a_message_is_done_when_the_next_one_is_asked_for(cluster, topic, join, session):
    fill(cluster, topic, count=3, partitions=1)
    connector = join()
    stream = stream_of(connector, topic)
    read(stream, 3)
    connector._consumer.commit(with_last=False)  # what auto-commit does
    assert offsets_of(session, topic)[Partition(topic, 0)] == 2
    connector.commit_offsets()
    assert offsets_of(session, topic)[Partition(topic, 0)] == 3


@pytest.mark.parametrize("dual", ["true", "false"])
def test_the_coordinator_keeps_offsets(cluster, topic, join, session, dual):
    fill(cluster, topic)
    connector = join(offsets_storage="kafka", dual_commit_enabled=dual)
    read(stream_of(connector, topic), 20)
    connector.shutdown()
    kept = {Partition(*one): found.offset for one, found in Groups(cluster).offsets(topic).items()}
    assert kept == all_at(topic, 5)
    assert offsets_of(session, topic) == (kept if dual == "true" else {})


def test_a_group_moves_to_the_coordinator_and_back(cluster, topic, join, session):
    """Each run has other settings, as the documented migration wants it, and goes on where the last one ended."""
    zookeeper, both = {"offsets_storage": "zookeeper"}, {"offsets_storage": "kafka", "dual_commit_enabled": "true"}
    kafka = both | {"dual_commit_enabled": "false"}
    for run_number, settings in enumerate([zookeeper, both, kafka, both, zookeeper]):
        fill(cluster, topic)
        connector = join(**settings)
        assert {one.offset // 5 for one in read(stream_of(connector, topic), 20)} == {run_number}
        connector.shutdown()
    assert offsets_of(session, topic) == all_at(topic, 25)


def test_no_offset_to_begin_with(cluster, topic, join):
    fill(cluster, topic)
    with pytest.raises(OffsetOutOfRangeError):
        next(stream_of(join(auto_offset_reset="error"), topic))


def test_an_offset_that_is_gone_is_reset(cluster, topic, join, session):
    fill(cluster, topic)
    for number in range(4):
        session.put(paths.consumer_offset(topic, topic, number), b"1")
        Admin(cluster).delete_records(topic, number, 3)
    assert {one.offset for one in read(stream_of(join(), topic), 8)} == {3, 4}


def test_messages_larger_than_a_fetch(cluster, topic, join):
    SyncProducer(cluster).send(topic, 0, [NewRecord(b"x" * 50_000), NewRecord(b"y")])
    found = read(stream_of(join(fetch_message_max_bytes="1000"), topic), 2)
    assert [len(one.value) for one in found] == [50_000, 1]


def test_brokers_that_restart_are_found_again(brokers, topic, join):
    stream = stream_of(join(), topic)
    for broker in brokers:
        broker.restart()
        with Cluster(broker.bootstrap) as cluster:
            fill(cluster, topic)
        assert len({(one.partition, one.offset) for one in read(stream, 20)}) == 20


def test_a_replaced_owner_commits_nothing(cluster, topic, join, session):
    """The owner node becomes another member's without notice, as after an expiry that the owner has not heard of."""
    fill(cluster, topic)
    connector = join(auto_commit_interval_ms="3600000")
    stream = stream_of(connector, topic)
    read(stream, 20)
    connector.commit_offsets()
    fill(cluster, topic)
    owner = paths.owner(topic, topic, 0)
    claims = SetData(paths.owners(topic, topic), b"")
    assert session.transact([Delete(owner), claims, Create(owner, b"another-0", ephemeral=True)]) is None
    owners = connector._consumer.member.owners
    assert owners.commit(all_at(topic, 9)) == {Partition(topic, 0)}
    assert offsets_of(session, topic) == all_at(topic, 9) | {Partition(topic, 0): 5}
    read(stream, 20)
    with pytest.raises(OwnershipLostError, match=f"{topic}-0"):
        connector.commit_offsets()
    assert session.transact([Delete(owner)]) is None
    assert offsets_of(session, topic)[Partition(topic, 0)] == 5


def test_a_member_that_finds_its_partitions_taken_says_so(topic, join, session):
    session.ensure(paths.owners(topic, topic))
    owner = paths.owner(topic, topic, 2)
    assert session.transact([Create(owner, b"another-0", ephemeral=True)]) is None
    connector = join(rebalance_max_retries="2", rebalance_backoff_ms="50")
    with pytest.raises(RebalanceFailedError, match=f"{topic}-2"):
        connector.create_message_streams({topic: 1})
    assert connector.owned_partitions() == set()
    assert session.transact([Delete(owner)]) is None


def test_a_registration_that_is_none_does_not_hold_up_the_group(cluster, topic, join, session, caplog):
    fill(cluster, topic)
    ids = paths.consumer_ids(topic)
    session.ensure(ids)
    for name, data in {
        "a-torn": b'{"version":1,"subscr',
        "z-greedy": b'{"subscription":{"t":99999999},"pattern":"static"}',
    }.items():
        assert session.transact([Create(f"{ids}/{name}", data)]) is None
    assert len(read(stream_of(join(), topic), 20)) == 20
    assert f"{ids}/a-torn is left out" in caplog.text
    assert f"{ids}/z-greedy is left out" in caplog.text


def test_two_members_of_one_name(topic, join):
    stream_of(join(consumer_id="one"), topic)
    second = join(consumer_id="one", zookeeper_session_timeout_ms="5000")
    with pytest.raises(ConsumerIdTakenError, match=f"{topic}_one"):
        second.create_message_streams({topic: 1})


@pytest.mark.parametrize("data", [b"one", b"%d" % 2**63])
def test_an_offset_that_is_none_is_named(topic, session, data):
    session.put(paths.consumer_offset(topic, topic, 1), data)
    with pytest.raises(ZooKeeperError, match=f"the offset of {topic}-1 is .*{data.decode()}"):
        describe_zookeeper_group(session, topic)
    assert (topic, False) in list_zookeeper_groups(session)


def test_an_owner_node_that_is_none_is_passed_over(topic, session):
    for name in ("no-number", "1"):
        session.put(f"{paths.owners(topic, topic)}/{name}", b"\xff")
    assert describe_zookeeper_group(session, topic).owners == {Partition(topic, 1): "\ufffd"}


@pytest.fixture(scope="module")
def where(brokers, connect):
    return "--bootstrap", brokers[0].bootstrap, "--zookeeper", connect


def test_offsets_by_command(cluster, where, topic, join, tmp_path):
    fill(cluster, topic)
    connector = join()
    read(stream_of(connector, topic), 20)
    refused = run("offsets", "migrate", topic, "--to", "kafka", *where)
    assert isinstance(refused.exception, GroupHasMembersError)
    assert connector.member_name in str(refused.exception)
    connector.commit_offsets()
    described = json.loads(run("groups", "describe", topic, *where, "--json").stdout)
    assert [one["lag"] for one in described["partitions"]] == [0] * 4
    assert {one["member"] for one in described["partitions"]} == {f"{connector.member_name}-0"}
    connector.shutdown()
    assert topic in run("groups", "list", *where).stdout
    assert run("offsets", "migrate", topic, "--to", "kafka", "--verify", *where).exit_code == 1
    moved = run("offsets", "migrate", topic, "--to", "kafka", "--json", *where)
    assert json.loads(moved.stdout)["is_complete"]
    both = [json.loads(line) for line in run("groups", "describe", topic, *where, "--json").stdout.splitlines()]
    assert [one["type"] == "zookeeper" for one in both] == [False, True]
    assert both[0]["partitions"] == both[1]["partitions"]
    exported = tmp_path / "offsets"
    exported.write_text(run("offsets", "export", topic, *where).stdout)
    assert json.loads(exported.read_text().splitlines()[0]) == {"topic": topic, "partition": 0, "offset": 5}
    arguments = ("offsets", "reset", topic, "--topic", topic, "--to", "2", "--store", "zookeeper", "--json", *where)
    for options, changed in (((), False), (("--execute",), True)):
        reset = json.loads(run(*arguments, *options).stdout)
        assert reset["is_executed"] is changed
        assert {(one["now"], one["new"]) for one in reset["partitions"]} == {(5, 2)}
    mistyped = run("offsets", "import", f"{topic}-", str(exported), "--store", "zookeeper", *where)
    words = f"group {topic}- does not exist; --create makes one; did you mean {topic}?"
    assert str(mistyped.exception) == words
    assert f"{topic}-" not in run("groups", "list", *where).stdout
    imported = run("offsets", "import", topic, str(exported), "--store", "zookeeper", *where)
    assert imported.exit_code == 0, imported.output
    back = run("offsets", "export", topic, "--store", "zookeeper", *where)
    assert back.stdout == exported.read_text()


def test_offsets_are_reset_to_the_ends_or_a_time_and_moved_back_to_zookeeper(cluster, where, topic, session):
    for number in range(4):
        records = [NewRecord(b"v", timestamp_ms=1_000 * second) for second in (1, 2, 3)]
        SyncProducer(cluster).send(topic, number, records)

    def reset_to(place):
        done = run("offsets", "reset", topic, "--topic", topic, "--to", place, "--execute", "--create", *where)
        assert done.exit_code == 0, done.output
        return {found.offset for found in Groups(cluster).offsets(topic).values()}

    assert reset_to("latest") == {3}
    assert reset_to("earliest") == {0}
    assert reset_to("1970-01-01T00:00:02+00:00") == {1}
    assert run("offsets", "migrate", topic, "--to", "zookeeper", "--verify", *where).exit_code == 1
    assert run("offsets", "migrate", topic, "--to", "zookeeper", *where).exit_code == 0
    assert run("offsets", "migrate", topic, "--to", "zookeeper", "--verify", *where).exit_code == 0
    assert offsets_of(session, topic) == all_at(topic, 1)


def test_a_reset_in_zookeeper_is_of_a_group_that_is_there_and_mends_a_damaged_offset(cluster, where, topic, session):
    def reset(group, *options):
        return run("offsets", "reset", group, "--topic", topic, "--to", "0", "--store", "zookeeper", *options, *where)

    refused = reset(f"{topic}-grp", "--execute")
    assert isinstance(refused.exception, GroupIdNotFoundError)
    assert f"{topic}-grp" not in dict(list_zookeeper_groups(session))
    session.put(paths.consumer_offset(topic, topic, 1), b"two")
    assert {one["now"] for one in json.loads(reset(topic, "--json").stdout)["partitions"]} == {None}
    assert reset(topic, "--execute").exit_code == 0
    assert offsets_of(session, topic) == all_at(topic, 0)
