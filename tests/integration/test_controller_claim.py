"""Brokers claim the role of the controller in a real ZooKeeper."""

import threading
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from millrace.errors import NotControllerError, ZooKeeperError
from millrace.zk import paths
from millrace.zk.codec import encode_controller
from millrace.zk.eligibility import SeenEpochs, decode_seen_epochs
from millrace.zk.operations import Create, Delete, Reason, Refused, SetData, Written
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_broker.controller.claims import ControllerClaim, claim_controller
from millrace_broker.controller.controller_store import ControllerStore
from millrace_broker.controller.eligibility import SeenLosses
from millrace_support.zookeeper_sessions import started

WAIT_S = 120
NOW_MS = 1_700_000_000_000
CLAIMANTS = 3
ROUNDS = 4


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


@pytest.fixture
def other(address):
    with started(address) as running:
        yield running


def test_the_first_claim_is_kafkas(session, other):
    assert claim_controller(session, 1, NOW_MS) == ControllerClaim(1, 1)
    assert session.get_many([paths.CONTROLLER, paths.CONTROLLER_EPOCH]) == [
        b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}',
        b"1",
    ]
    assert claim_controller(other, 2, NOW_MS) is None


def test_one_of_the_racers_wins_each_round_and_no_epoch_is_used_twice(address):
    epochs = []
    for _ in range(ROUNDS):
        sessions = [started(address) for _ in range(CLAIMANTS)]
        claimants = [one.__enter__() for one in sessions]
        claims = [None] * CLAIMANTS
        barrier = threading.Barrier(CLAIMANTS)

        def race(number, claimants=claimants, claims=claims, barrier=barrier):
            barrier.wait(WAIT_S)
            claims[number] = claim_controller(claimants[number], number, NOW_MS)

        threads = [threading.Thread(target=race, args=[number]) for number in range(CLAIMANTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        [claim] = [one for one in claims if one is not None]
        winner = claimants[claims.index(claim)]
        assert winner.holds(winner.nodes([paths.CONTROLLER])[0])
        epochs.append(claim.epoch)
        for one in sessions:
            one.__exit__(None, None, None)
    assert epochs == list(range(1, ROUNDS + 1))


def test_a_former_controllers_write_is_refused(session, other):
    former = claim_controller(session, 1, NOW_MS)
    assert session.multi([former.check(), Create("/written", b"1")]) == (None, Written("/written", 0))
    assert other.multi([SetData("/written", b"2")]) == (Written("/written", 1),)
    assert other.multi([Delete(paths.CONTROLLER)]) == (None,), "as an operator moves the role"
    current = claim_controller(other, 2, NOW_MS)
    assert current.epoch == former.epoch + 1
    refused = session.multi([former.check(), SetData("/written", b"of a former controller", 1)])
    assert refused == Refused(0, paths.CONTROLLER_EPOCH, Reason.BAD_VERSION)
    stale = other.multi([current.check(), SetData("/written", b"3", 0)])
    assert stale == Refused(1, "/written", Reason.BAD_VERSION), "the node was changed, and the controller is current"
    assert other.multi([current.check(), SetData("/written", b"3", 1)]) == (None, Written("/written", 2))


def seen_by(session):
    (node,) = session.nodes([paths.SEEN_BROKER_EPOCHS])
    return decode_seen_epochs(node.data), node.created_zxid


def test_a_claim_takes_over_what_losses_the_controller_before_has_seen(session, other):
    claim_controller(session, 1, NOW_MS)
    assert seen_by(session)[0] == SeenEpochs(1)
    store = ControllerStore(session, ControllerClaim(1, 1))
    store.write_seen_losses({1: 31})
    kept, created_zxid = seen_by(session)
    assert kept == SeenEpochs(1, {1: 31})
    assert store.seen_losses() == SeenLosses(created_zxid, {1: 31})
    for epoch in (2, 3):  # the first of these ends before it has seen anything
        other.multi([Delete(paths.CONTROLLER)])
        claim_controller(other, 2, NOW_MS)
        assert seen_by(session) == (SeenEpochs(epoch, {1: 31}), created_zxid)
    with pytest.raises(NotControllerError):
        store.write_seen_losses({1: 32})


@pytest.mark.parametrize("between", ["another controller", "nonsense"])
def test_a_claim_begins_anew_where_a_controller_that_keeps_nothing_was_before(session, between):
    claim_controller(session, 1, NOW_MS)
    ControllerStore(session, ControllerClaim(1, 1)).write_seen_losses({1: 31})
    _, created_zxid = seen_by(session)
    session.multi([Delete(paths.CONTROLLER)])
    if between == "nonsense":
        session.put(paths.SEEN_BROKER_EPOCHS, b"{}")
    else:
        session.put(paths.CONTROLLER_EPOCH, b"2")  # as of Apache Kafka, or of a former release
    claim = claim_controller(session, 1, NOW_MS)
    (controller,) = session.nodes([paths.CONTROLLER])
    assert seen_by(session) == (SeenEpochs(claim.epoch), controller.created_zxid)
    assert controller.created_zxid > created_zxid


def test_a_claim_whose_answer_was_lost_is_found_again(session, monkeypatch):
    multi = session.multi

    def unanswered(operations):
        multi(operations)
        raise ZooKeeperError("the connection is lost")

    session.create(paths.CONTROLLER_EPOCH, b"4")
    monkeypatch.setattr(session, "multi", unanswered)
    with pytest.raises(ZooKeeperError):
        claim_controller(session, 1, NOW_MS)
    monkeypatch.setattr(session, "multi", multi)
    found = claim_controller(session, 1, NOW_MS)
    assert found == ControllerClaim(5, 1)
    assert claim_controller(session, 1, NOW_MS) == found


def test_the_node_of_an_expired_session_of_the_same_broker_is_not_taken_for_the_own(address, session):
    former = KazooClient(hosts=address, timeout=60)
    former.start(timeout=WAIT_S)
    former.create(paths.CONTROLLER, encode_controller(1, NOW_MS), ephemeral=True)
    assert claim_controller(session, 1, NOW_MS) is None
    former.stop()
    former.close()
    assert claim_controller(session, 1, NOW_MS) == ControllerClaim(1, 1)


def test_an_epoch_that_was_set_by_hand_is_not_the_claims(session):
    assert claim_controller(session, 1, NOW_MS) == ControllerClaim(1, 1)
    session.put(paths.CONTROLLER_EPOCH, b"41")
    assert claim_controller(session, 1, NOW_MS) == ControllerClaim(42, 3)


def test_others_that_change_the_epoch_all_the_time_end_the_claim(session, monkeypatch):
    multi = session.multi

    def later(operations):
        multi([SetData(paths.CONTROLLER_EPOCH, b"7")])
        return multi(operations)

    session.create(paths.CONTROLLER_EPOCH, b"0")
    monkeypatch.setattr(session, "multi", later)
    with pytest.raises(ZooKeeperError, match="changed by others 10 times"):
        claim_controller(session, 1, NOW_MS)
