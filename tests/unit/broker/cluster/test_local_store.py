"""The local store: what it keeps, what it refuses, and a power cut at each of its operations on the disk."""

import errno
import json
import threading
from random import Random
from uuid import uuid4

import pytest

from millrace.errors import (
    InconsistentClusterIdError,
    InvalidPartitionsError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
)
from millrace.fs import OsFileSystem
from millrace.security.acls import Acl, AclOperation, PatternType, PermissionType, ResourcePattern, ResourceType
from millrace_broker.cluster.local_store import LocalStore
from millrace_broker.cluster.metadata_image import ALL_BROKERS, BrokerInfo, PartitionInfo, TopicInfo
from millrace_broker.cluster.store import ClusterOfFolder, NamedCluster
from millrace_broker.storage import TopicPartition
from millrace_support.crash_fs import CrashFileSystem, PowerCutError

DATA_DIR = "/data"
BROKER = BrokerInfo(1, "localhost", 9092)
ORDERS = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a:b", PatternType.PREFIXED)
READ = Acl("User:alice", "*", AclOperation.DESCRIBE, PermissionType.ALLOW)


def topic(name, partitions=2):
    infos = tuple(PartitionInfo(index, 1, 0, (1,), (1,)) for index in range(partitions))
    return TopicInfo(name, uuid4(), infos, {"retention.ms": "5"})


def started(fs, directory=DATA_DIR, listener=lambda _: None):
    store = LocalStore(fs, str(directory))
    store.start(listener)
    return store


def fresh_fs():
    fs = CrashFileSystem()
    fs.mkdir(DATA_DIR)
    fs.fsync_dir("/")
    return fs


def test_it_keeps_everything_across_a_restart(tmp_path):
    first = started(OsFileSystem(), tmp_path / "data")
    first.register_broker(BROKER)
    first.create_topic(topic("a"))
    first.create_topic(topic("b"))
    first.delete_topic("b")
    first.set_client_config("users/alice/clients/app", {"producer_byte_rate": "1"})
    first.set_client_config("ips/::1", {"connection_creation_rate": "2"})
    first.change_acls(ORDERS, lambda before: before | {READ})
    image = first.image()
    first.close()
    second = started(OsFileSystem(), tmp_path / "data")
    second.register_broker(BROKER)
    assert second.image() == image
    assert image.acls == {ORDERS: {READ}}
    assert list(image.topics) == ["a"]
    assert image.client_configs == {
        "users/alice/clients/app": {"producer_byte_rate": "1"},
        "ips/::1": {"connection_creation_rate": "2"},
    }
    assert (len(image.cluster_id), image.controller_id, image.brokers) == (22, 1, {1: BROKER})


def test_the_one_broker_leads_whatever_its_id():
    store = started(fresh_fs())
    store.create_topic(topic("a"))
    assert store.image().controller_id == -1
    store.register_broker(BrokerInfo(7, "localhost", 9092))
    assert {partition.leader for partition in store.image().topics["a"].partitions} == {7}


def test_each_change_is_told_in_order():
    images = []
    store = started(fresh_fs(), listener=images.append)
    store.register_broker(BROKER)
    store.create_topic(topic("a"))
    store.delete_topic("a")
    assert [list(image.topics) for image in images] == [[], ["a"], []]


def test_names_are_taken_once_and_deleted_once():
    store = started(fresh_fs())
    store.create_topic(topic("a"))
    with pytest.raises(TopicExistsError):
        store.create_topic(topic("a"))
    store.delete_topic("a")
    with pytest.raises(UnknownTopicError):
        store.delete_topic("a")


def test_an_adopted_topic_has_its_id_and_its_leader_epochs_also_after_a_restart():
    fs = fresh_fs()
    store = started(fs)
    infos = tuple(PartitionInfo(index, 1, 105 + index, (1,), (1,)) for index in range(2))
    adopted = TopicInfo("a", uuid4(), infos, {})
    store.adopt_topic(adopted)
    assert store.topic_id("a") == adopted.topic_id
    assert store.topic_id("b") is None
    with pytest.raises(TopicExistsError):
        store.adopt_topic(adopted)
    again = started(fs)
    again.register_broker(BROKER)
    assert again.image().topics == {"a": adopted}


def test_a_lost_file_is_made_again_with_the_cluster_id_of_the_folders_alone():
    fs = fresh_fs()
    with pytest.raises(InconsistentClusterIdError, match=r"cluster\.id lost, and /data/metadata\.json has no cluster"):
        LocalStore(fs, DATA_DIR, NamedCluster(None, lambda: ClusterOfFolder(DATA_DIR, "lost"))).start(lambda _: None)
    assert not fs.exists(f"{DATA_DIR}/metadata.json")
    named = LocalStore(fs, DATA_DIR, NamedCluster("lost"))
    named.start(lambda _: None)
    assert started(fs).image().cluster_id == "lost"


def test_threads_do_not_lose_each_others_topics():
    fs = fresh_fs()
    store = started(fs)
    threads = [threading.Thread(target=store.create_topic, args=[topic(f"t{number}")]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(started(fs).image().topics) == {f"t{number}" for number in range(8)}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1, "topics": {}}'])
def test_a_file_that_is_not_ours_is_never_overwritten(tmp_path, content):
    file = tmp_path / "metadata.json"
    file.write_bytes(content)
    with pytest.raises(StorageError, match="metadata"):
        started(OsFileSystem(), tmp_path)
    assert file.read_bytes() == content


@pytest.mark.parametrize("operation", ["create", "pwritev", "fsync", "rename"])
def test_a_disk_that_refuses_leaves_the_store_as_it_was(operation):
    fs = fresh_fs()
    store = started(fs)
    fs.fail(operation, code=errno.ENOSPC)
    with pytest.raises(StorageError):
        store.create_topic(topic("a"))
    assert dict(store.image().topics) == {}
    assert dict(started(fs).image().topics) == {}
    store.create_topic(topic("a"))
    assert list(started(fs).image().topics) == ["a"]
    assert fs.open_files == 0


CHANGES = (
    ("create", "a", {"a"}),
    ("create", "b", {"a", "b"}),
    ("delete", "a", {"b"}),
    ("create", "a", {"a", "b"}),
)


def apply_until_cut(fs):
    """The cluster id, if it was told, and the sets of topics that may be found after the cut."""
    cluster_id, before = None, set()
    try:
        store = started(fs)
        cluster_id = store.image().cluster_id
        for verb, name, after in CHANGES:
            possible = [before, after]
            if verb == "create":
                store.create_topic(topic(name))
            else:
                store.delete_topic(name)
            before, possible = after, [after]
    except PowerCutError:
        return cluster_id, possible if cluster_id else [set()]
    return cluster_id, [before]


def test_a_power_cut_anywhere_leaves_the_state_before_or_after_a_change():
    rehearsal = fresh_fs()
    before = rehearsal.operations
    apply_until_cut(rehearsal)
    for operation in range(before + 1, rehearsal.operations + 2):
        fs = fresh_fs()
        fs.cut_power_at(operation)
        cluster_id, possible = apply_until_cut(fs)
        for disk in (fs.after_kill(), fs.after_cut(), *(fs.after_cut(Random(seed)) for seed in range(10))):
            image = started(disk).image()
            assert set(image.topics) in possible, f"power cut at operation {operation}"
            assert cluster_id in (None, image.cluster_id)


def test_partitions_and_configurations_are_changed_durably(tmp_path):
    images = []
    store = started(OsFileSystem(), tmp_path / "data", images.append)
    store.register_broker(BROKER)
    store.create_topic(topic("t", 1))
    store.add_partitions("t", topic("t", 4).partitions[1:])
    store.set_topic_config("t", {"retention.bytes": "9"})
    store.set_broker_config("1", {"log.retention.ms": "1"})
    store.set_broker_config(ALL_BROKERS, {"log.retention.ms": "2"})
    store.set_broker_config("1", {})
    image = store.image()
    assert [len(one.topics["t"].partitions) for one in images if "t" in one.topics] == [1, 4, 4, 4, 4, 4]
    assert image.topics["t"].config == {"retention.bytes": "9"}
    assert image.broker_configs == {"1": {}, ALL_BROKERS: {"log.retention.ms": "2"}}
    again = started(OsFileSystem(), tmp_path / "data")
    again.register_broker(BROKER)
    assert again.image() == image


def test_what_is_changed_must_be_there_as_it_was_seen(tmp_path):
    store = started(OsFileSystem(), tmp_path / "data")
    store.create_topic(topic("t", 2))
    with pytest.raises(UnknownTopicError):
        store.set_topic_config("x", {})
    with pytest.raises(UnknownTopicError):
        store.add_partitions("x", topic("x", 2).partitions[1:])
    with pytest.raises(InvalidPartitionsError):
        store.add_partitions("t", topic("t", 2).partitions[1:])


def epochs(store, name):
    return [partition.leader_epoch for partition in store.image().topics[name].partitions]


def test_raised_leader_epochs_are_kept_and_never_go_back(tmp_path):
    first = started(OsFileSystem(), tmp_path)
    first.register_broker(BROKER)
    first.create_topic(topic("a"))
    first.create_topic(topic("b"))
    first.raise_leader_epochs({TopicPartition("a", 1): 4, TopicPartition("gone", 0): 1, TopicPartition("a", 9): 1})
    first.raise_leader_epochs({TopicPartition("a", 1): 3, TopicPartition("a", 0): 1})
    first.add_partitions("a", [PartitionInfo(2, 1, 0, (1,), (1,))])
    second = started(OsFileSystem(), tmp_path)
    second.register_broker(BROKER)
    assert (epochs(second, "a"), epochs(second, "b")) == ([1, 4, 0], [0, 0])


def test_a_file_of_before_without_leader_epochs_is_read(tmp_path):
    first = started(OsFileSystem(), tmp_path)
    first.create_topic(topic("a"))
    assert "leader_epochs" not in (tmp_path / "metadata.json").read_text()
    assert epochs(started(OsFileSystem(), tmp_path), "a") == [0, 0]


def test_leader_epochs_that_a_full_disk_does_not_take_count_and_are_stored_with_the_next_change():
    fs = fresh_fs()
    store = started(fs)
    store.create_topic(topic("a"))
    fs.fail("pwritev", code=errno.ENOSPC)
    with pytest.raises(StorageError):
        store.raise_leader_epochs({TopicPartition("a", 0): 3})
    assert epochs(store, "a") == [3, 0]
    store.set_topic_config("a", {})
    assert epochs(started(fs.after_cut()), "a") == [3, 0]


def test_credentials_of_users_can_be_read_by_their_owner_alone(tmp_path):
    store = started(OsFileSystem(), tmp_path)
    path = tmp_path / "metadata.json"
    store.set_client_config("users/alice", {"producer_byte_rate": "1"})
    assert path.stat().st_mode & 0o077
    store.set_client_config("users/alice", {"SCRAM-SHA-256": "salt=..."})
    assert path.stat().st_mode & 0o777 == 0o600
    started(OsFileSystem(), tmp_path).create_topic(topic("t"))
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_access_control_list_without_entries_is_gone(tmp_path):
    store = started(OsFileSystem(), tmp_path / "data")
    store.change_acls(ORDERS, lambda before: before | {READ})
    store.change_acls(ORDERS, lambda before: before - {READ})
    assert store.image().acls == {}


def test_an_access_control_list_that_can_not_be_written_is_not_obeyed():
    fs = fresh_fs()
    store = started(fs)
    fs.fail("pwritev", code=errno.ENOSPC)
    with pytest.raises(StorageError):
        store.change_acls(ORDERS, lambda before: before | {READ})
    assert store.image().acls == {}


@pytest.mark.parametrize("epoch", [2**31 - 1, 2**31, -1])
def test_a_leader_epoch_that_can_not_be_is_named(tmp_path, epoch):
    started(OsFileSystem(), tmp_path).create_topic(topic("a"))
    file = tmp_path / "metadata.json"
    document = json.loads(file.read_text())
    document["topics"]["a"]["leader_epochs"] = [epoch, 0]
    file.write_text(json.dumps(document))
    with pytest.raises(StorageError, match=f"metadata.json: leader epoch {epoch} is not between 0 and"):
        started(OsFileSystem(), tmp_path)
