"""Access control lists in ZooKeeper's nodes: obeyed whoever writes them, changed by compare-and-swap."""

import queue
import threading
from uuid import uuid4

import pytest

from millrace.clock import SystemClock
from millrace.errors import ZooKeeperError
from millrace.security.acls import Acl, AclOperation, PatternType, PermissionType, ResourcePattern, ResourceType
from millrace.zk import paths
from millrace.zk.codec import decode_acls, encode_acls
from millrace_broker.cluster import zookeeper_nodes
from millrace_broker.cluster.zookeeper_store import ZooKeeperStore

WAIT_S = 120
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.GROUP, "app-", PatternType.PREFIXED)


def acl(name, permission=PermissionType.ALLOW):
    return Acl(f"User:{name}", "*", AclOperation.READ, permission)


class Observed:
    """A store that has access control lists, and the images that it tells of."""

    def __init__(self, address):
        self.images = queue.Queue()
        self.store = ZooKeeperStore(address, SystemClock(), has_acls=True)
        self.store.start(self.images.put)

    def until(self, acls):
        while self.store.image().acls != acls:
            self.images.get(timeout=WAIT_S)


@pytest.fixture
def observe(zookeeper):
    address, opened = f"{zookeeper.address}/{uuid4().hex}", []

    def start():
        opened.append(Observed(address))
        return opened[-1]

    yield start
    for one in opened:
        one.store.close()


def add(observed, pattern, *entries):
    observed.store.change_acls(pattern, lambda before: before | set(entries))


def test_what_one_broker_writes_all_obey(observe):
    one, other = observe(), observe()
    add(one, ORDERS, acl("alice"))
    assert one.store.image().acls == {ORDERS: {acl("alice")}}
    add(other, PREFIX, acl("bob"))
    for each in (one, other, observe()):
        each.until({ORDERS: {acl("alice")}, PREFIX: {acl("bob")}})
    one.store.change_acls(ORDERS, lambda before: before - {acl("alice")})
    other.until({PREFIX: {acl("bob")}})
    session = one.store.session
    assert session.get(paths.acls(ORDERS)) is None
    assert [len(session.children(folder)) for folder in paths.ACL_CHANGES.values()] == [2, 1]


def test_what_another_program_writes_without_a_notification_is_obeyed(observe):
    observed = observe()
    session = observed.store.session
    session.create(paths.acls(ORDERS), encode_acls({acl("alice")}))
    observed.until({ORDERS: {acl("alice")}})
    session.put(paths.acls(ORDERS), encode_acls({acl("bob")}))
    observed.until({ORDERS: {acl("bob")}})


def test_a_list_that_can_not_be_read_denies_all_until_it_is_repaired(observe, caplog):
    observed = observe()
    session = observed.store.session
    session.create(paths.acls(ORDERS), b"no list")
    observed.until({ORDERS: zookeeper_nodes.NOBODY})
    assert "/kafka-acl/Topic/orders can't be read" in caplog.text
    with pytest.raises(ZooKeeperError, match="not a list of access control"):
        add(observed, ORDERS, acl("alice"))
    session.put(paths.acls(ORDERS), encode_acls({acl("alice")}))
    observed.until({ORDERS: {acl("alice")}})


def test_brokers_that_write_at_the_same_time_lose_nothing(observe):
    stores = [observe(), observe()]

    def write(observed, names):
        for name in names:
            add(observed, ORDERS, acl(name))

    threads = [
        threading.Thread(target=write, args=(one, [f"{one_of}-{n}" for n in range(20)]))
        for one_of, one in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    stored = decode_acls(stores[0].store.session.get(paths.acls(ORDERS)))
    assert stored == {acl(f"{one_of}-{n}") for one_of in range(2) for n in range(20)}


def test_a_change_that_others_always_overtake_is_given_up(observe):
    observed = observe()
    session = observed.store.session

    def overtaken(before):
        session.put(paths.acls(ORDERS), encode_acls({acl(uuid4().hex)}))
        return before | {acl("alice")}

    add(observed, ORDERS, acl("bob"))
    with pytest.raises(ZooKeeperError, match="changed by other brokers 10 times"):
        observed.store.change_acls(ORDERS, overtaken)


def test_a_change_that_changes_nothing_writes_nothing(observe):
    observed = observe()
    add(observed, ORDERS, acl("alice"))
    version = observed.store.session.get_with_version(paths.acls(ORDERS))[1]
    add(observed, ORDERS, acl("alice"))
    assert observed.store.session.get_with_version(paths.acls(ORDERS))[1] == version
