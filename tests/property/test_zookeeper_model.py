"""The model of ZooKeeper does what a real one does: two sessions do the same random operations with both."""

import asyncio
from random import Random
from uuid import uuid4

import pytest

from millrace.zk.operations import ANY_VERSION, Check, Create, Delete, SetData
from millrace_support.model_zookeeper import ModelSession, ModelZooKeeper
from millrace_support.until import until
from millrace_support.zookeeper_sessions import started

PATHS = ("/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f")
PARENTS = ("/a", "/a/b", "/e")  # never ephemeral, as ephemeral nodes have no children
OPERATIONS = 120


class Listener:
    """Holds the paths that a session has told of."""

    def __init__(self):
        self.paths = set()

    def __call__(self, changed):
        if changed is not None:
            self.paths |= changed


def random_operation(chance, present):
    path = chance.choice((*PATHS, *present))
    version = chance.choice([ANY_VERSION, ANY_VERSION, 0, 1, 2])
    match chance.choices(["create", "set", "delete", "check"], [5, 3, 3, 1])[0]:
        case "create":
            is_ephemeral = path not in PARENTS and chance.random() < 0.5
            return Create(path, chance.randbytes(2), chance.random() < 0.2, is_ephemeral)
        case "set":
            return SetData(path, chance.randbytes(2), version)
        case "delete":
            return Delete(path, version)
        case _:
            return Check(path, max(version, 0))


def ranks(nodes):
    """Nodes with the ids of transactions and sessions replaced by their order, which is all that counts."""
    numbers = {number for node in nodes if node for number in (node.created_zxid, node.modified_zxid)}
    order = {number: rank for rank, number in enumerate(sorted(numbers))}
    return [
        node
        and node._replace(created_zxid=order[node.created_zxid], modified_zxid=order[node.modified_zxid], session_id=0)
        for node in nodes
    ]


def read(session, kind, path, *, watch):
    match kind:
        case "exists":
            return session.exists(path, watch=watch)
        case "children":
            return sorted(session.children(path, watch=watch))
        case _:
            (node,) = session.nodes([path], watch=watch)
            return node and (node.data, node.version, session.holds(node))


def play(chance, models, sessions):
    """Has both sessions do some of the operations; what each of them gets must be the same."""
    for _ in range(OPERATIONS):
        number = chance.randrange(2)
        modelled, real = models[number], sessions[number]
        if chance.random() < 0.5:
            kind = chance.choice(["exists", "children", "node"])
            path, watch = chance.choice(PATHS), chance.random() < 0.7
            assert read(modelled, kind, path, watch=watch) == read(real, kind, path, watch=watch)
        else:
            present = sorted(models[0].zookeeper.nodes)
            operations = [random_operation(chance, present) for _ in range(chance.choice([1, 1, 2, 3]))]
            assert modelled.multi(operations) == real.multi(operations), operations
        for each in sessions:
            each.confirm()


def check_both(address, chance):
    """Compares what the sessions got, what they were told of, and what stays when they end."""
    heard, modelled_heard = [Listener(), Listener()], [Listener(), Listener()]
    model = ModelZooKeeper()
    models = [ModelSession(model, on_change=one) for one in modelled_heard]
    with started(address, heard[0]) as first, started(address, heard[1]) as second:
        play(chance, models, (first, second))
        everything = sorted(model.nodes)
        assert ranks(models[0].nodes(everything)) == ranks(first.nodes(everything))
        assert sorted(models[0].tree("/a")) == sorted(first.tree("/a"))
        asyncio.run(until(lambda: [one.paths for one in heard] == [one.paths for one in modelled_heard]))
    for each in models:
        each.close()
    with started(address) as third:
        assert ranks(ModelSession(model).nodes(everything)) == ranks(third.nodes(everything))


@pytest.mark.soak(rounds=6, minutes=1)
def test_the_model_does_what_zookeeper_does(zookeeper, rounds, record_property):
    for seed in rounds:
        check_both(f"{zookeeper.address}/model/{uuid4().hex}", Random(seed))
    record_property("seeds", seed + 1)
