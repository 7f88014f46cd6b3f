"""The session with a real ZooKeeper: what a transaction answers, and whose an ephemeral node is."""

import queue
import socket
import threading
from contextlib import contextmanager, suppress
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from millrace.addresses import Address, parse_address
from millrace.errors import ZooKeeperError
from millrace.zk.operations import FIRST_VERSION, Check, Create, Delete, Reason, Refused, SetData, Written
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.relays import Relays
from millrace_support.zookeeper_sessions import SESSION_TIMEOUT_MS, expire, started

WAIT_S = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def address(server):
    return f"{server.address}/tests/{uuid4().hex}"


@pytest.fixture
def session(address):
    with started(address) as running:
        yield running


@contextmanager
def client_of(address):
    """Another process's client."""
    client = KazooClient(hosts=address, timeout=SESSION_TIMEOUT_MS / 1000)
    client.start(timeout=WAIT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_a_transaction_tells_the_versions_that_it_has_made(session):
    created = session.multi([Create("/a", b"1"), Create("/a/n", sequential=True), Create("/b")])
    assert created == (Written("/a", 0), Written("/a/n0000000000", 0), Written("/b", 0))
    changed = session.multi([Check("/a", 0), SetData("/a", b"2", 0), SetData("/a", b"3"), Delete("/b", 0)])
    assert changed == (None, Written("/a", 1), Written("/a", 2), None)
    assert session.get_with_version("/a") == (b"3", 2)
    assert session.get("/b") is None


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (SetData("/set_twice", b"x", 1), Reason.BAD_VERSION),
        (Delete("/set_twice", 0), Reason.BAD_VERSION),
        (Check("/set_twice", 3), Reason.BAD_VERSION),
        (Create("/set_twice"), Reason.NODE_EXISTS),
        (Create("/none/child"), Reason.NO_NODE),
        (SetData("/none", b"x", 0), Reason.NO_NODE),
        (Delete("/none"), Reason.NO_NODE),
        (Check("/none", 0), Reason.NO_NODE),
        (Delete("/parent", 0), Reason.NOT_EMPTY),
    ],
)
def test_a_refused_operation_is_named_and_nothing_is_done(session, operation, reason):
    session.multi([Create("/set_twice"), SetData("/set_twice", b"1"), SetData("/set_twice", b"2")])
    session.multi([Create("/parent"), Create("/parent/child")])
    assert session.multi([operation]) == Refused(0, operation.path, reason), "alone"
    around = [Create("/before"), operation, Create("/after"), Delete("/none")]
    assert session.multi(around) == Refused(1, operation.path, reason), "the first of two that can't be done"
    assert session.transact(around) == operation.path
    assert session.get_many(["/before", "/after", "/set_twice"]) == [None, None, b"2"]


def test_a_node_is_put_with_its_data_in_one_step(session):
    """So that a watcher of its parent never reads it empty."""
    session.put("/put/here", b"first")
    [node] = session.nodes(["/put/here"])
    assert (node.data, node.version) == (b"first", FIRST_VERSION)
    session.put("/put/here", b"second")
    assert session.get("/put/here") == b"second"


@pytest.mark.parametrize("rivals", [0, 1, 9])
def test_a_node_that_others_make_and_delete_is_put_at_last(session, monkeypatch, rivals):
    come_and_go(session, monkeypatch, rivals)
    session.put("/rival/node", b"ours")
    assert session.get("/rival/node") == b"ours"


def test_a_node_that_others_make_and_delete_again_and_again_is_not_put(session, monkeypatch):
    come_and_go(session, monkeypatch, 10)
    with pytest.raises(ZooKeeperError, match="/rival/node is not written: others make and delete it again and again"):
        session.put("/rival/node", b"ours")


def come_and_go(session, monkeypatch, times):
    """Lets a rival delete the node before it is set and make it before it is created, so many times."""
    transact = session.transact
    rivals = iter([Delete("/rival/node"), Create("/rival/node", b"theirs")] * times)

    def after_the_rival(operations):
        transact([one for one in [next(rivals, None)] if one is not None])
        return transact(operations)

    session.ensure("/rival/node")
    if not times:
        transact([Delete("/rival/node")])
    monkeypatch.setattr(session, "transact", after_the_rival)


def test_what_is_refused_for_another_reason_is_an_error(session):
    session.multi([Create("/ephemeral", ephemeral=True)])
    with pytest.raises(ZooKeeperError, match=r"/ephemeral/child: NoChildrenForEphemerals"):
        session.multi([Create("/ephemeral/child")])


def test_each_registration_tells_the_transaction_that_created_its_node(address):
    told, heard = [], queue.Queue()

    def listen(changed):
        if changed is None:
            heard.put(len(told))

    with started(address, listen) as session:
        assert session.register("/mine", b"data", wait_ms=0, on_registered=told.append) is None
        [first] = told
        (node,) = session.nodes(["/mine"])
        assert (node.created_zxid, session.holds(node)) == (first, True)
        expire(address, session.client_id)
        while heard.get(timeout=WAIT_S) < 2:
            pass  # a listener that hears of the new session after its registration ends the test
        second = told[1]
        assert second > first
        (again,) = session.nodes(["/mine"])
        assert (again.created_zxid, session.holds(again), session.holds(node)) == (second, True, False)


def test_a_server_that_takes_connections_and_answers_none_is_asked_again_before_the_session_ends(server, address):
    connections = []

    def accept(silent):
        with suppress(OSError):  # it is closed
            while True:
                connections.append(silent.accept()[0])

    relayed = address.partition("/")[1:]
    with Relays() as relays, socket.create_server(("127.0.0.1", 0)) as silent, started(address) as observer:
        relay = relays.open(parse_address(server.address))
        with started("".join((str(relay.address), *relayed))) as session:
            session.multi([Create("/mine", ephemeral=True)])
            relay.target = Address(*silent.getsockname())
            relay.cut()
            relay.heal(breaks=True)
            threading.Thread(target=accept, args=[silent], daemon=True).start()
            observer._await_deletion("/mine", WAIT_S)
            assert len(connections) > 2
            relay.target = parse_address(server.address)
        silent.shutdown(socket.SHUT_RDWR)


def test_a_registration_that_outlives_its_connection_is_told_once(tmp_path):
    told, heard = [], threading.Event()
    with EmbeddedZooKeeper(tmp_path) as server:

        def listen(changed):
            if changed is None:
                heard.set()

        with started(server.address, listen) as session:
            session.register("/mine", b"data", wait_ms=0, on_registered=told.append)
            server.kill()
            server.start()
            assert heard.wait(WAIT_S), "connected again"
            (node,) = session.nodes(["/mine"])
            assert told[-1] == node.created_zxid
            assert len(told) == len(set(told))


def test_a_node_that_an_expired_session_of_ours_has_left_is_replaced(address, session):
    """The session that left it lives on in the server for a while; its end must not take our registration away."""
    told = []
    with client_of(address) as former:
        former.create("/mine", b"data", ephemeral=True)
        assert session.register("/mine", b"data", wait_ms=0, on_registered=told.append) is None
        (node,) = session.nodes(["/mine"])
        assert session.holds(node)
        assert told == [node.created_zxid]
    assert session.nodes(["/mine"]) == [node], "it stays when the other session ends"


def test_another_processs_node_is_waited_for_and_never_taken_for_ours(address, session):
    told = []
    with client_of(address) as other:
        other.create("/mine", b"of another", ephemeral=True)
        assert session.register("/mine", b"data", wait_ms=0, on_registered=told.append) == b"of another"
        assert told == []
        waiting = threading.Thread(
            target=session.register, args=["/mine", b"data"], kwargs={"wait_ms": 60_000, "on_registered": told.append}
        )
        waiting.start()
    waiting.join(WAIT_S)
    (node,) = session.nodes(["/mine"])
    assert session.holds(node)
    assert told == [node.created_zxid]


def test_a_registration_below_no_node_is_an_error(session):
    with pytest.raises(ZooKeeperError, match="/none/mine is not created: there is no such node"):
        session.register("/none/mine", b"data", wait_ms=0)


def test_a_node_of_ours_that_another_deletes_is_made_again(address):
    told, changes = queue.SimpleQueue(), queue.SimpleQueue()
    with started(address, changes.put) as session, client_of(address) as other:
        assert session.register("/mine", b"data", wait_ms=0, on_registered=told.put) is None
        made = told.get(timeout=WAIT_S)
        for _ in range(2):
            other.delete("/mine")
            again = told.get(timeout=WAIT_S)
            assert again > made, "of another transaction, which is another broker epoch"
            (node,) = session.nodes(["/mine"])
            assert session.holds(node)
            assert node.created_zxid == again
            made = again
        session.deregister("/mine")
        assert not session.exists("/mine")
        other.create("/mine", b"of another", ephemeral=True)
        session.deregister("/mine")
        assert session.get("/mine") == b"of another"
    assert told.empty()
