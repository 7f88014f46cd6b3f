"""A model of ZooKeeper in memory: nodes with versions and transaction ids, sessions, transactions and watches.

    zookeeper = ModelZooKeeper()
    session = ModelSession(zookeeper, 1, on_change)

A session has those methods of `ZooKeeperSession` that brokers and controllers use, and does what that does. Watches
tell of changes, and registrations are renewed, only where `on_change` is given. It is called at once for each change,
or, where `call_later` is given, a moment later for all changes together.

    session.disconnect()       every call raises ZooKeeperError; watches are gone; the ensemble does not know yet
    zookeeper.expire(session)  the ensemble ends the session, and its ephemeral nodes go
    session.connect()          goes on, with a new session if the former has expired: registers, and reads all again
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from millrace.errors import ZooKeeperError
from millrace.zk.operations import ANY_VERSION, Check, Create, Delete, Operation, Reason, Refused, SetData, Written
from millrace.zk.session import Node, OnChange, OnRegistered

CallLater = Callable[[Callable[[], None]], object]
EVERYTHING = ""
NO_SESSION = 0


class Listener(Protocol):
    """Hears of each change, as sessions do."""

    def changed(self, path: str, *, comes_or_goes: bool) -> None:
        """Hears of a node that was set, or that has come or gone."""
        ...


class ModelZooKeeper:
    """The nodes that all sessions share, by their paths, and the sessions that watch them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.zxid = 0
        self._created_below: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._last_session_id = 1000

    def new_session_id(self) -> int:
        """Returns an id that no session has had."""
        self._last_session_id += 1
        return self._last_session_id

    def join(self, listener: Listener) -> None:
        """Takes a session, or something else, that is to hear of changes."""
        self._listeners.append(listener)

    # What another program does.

    def put(self, path: str, data: bytes, session_id: int = NO_SESSION) -> None:
        """Writes a node as another program would, with the nodes above it."""
        above = [parent for parent in _parents(path) if parent not in self.nodes]
        owner = {path: session_id} if path not in self.nodes else {}
        self.zxid += 1
        for each in (*above, *owner):
            self._create(each, data if each == path else b"", owner.get(each, NO_SESSION))
        if not owner:
            self._set(path, data)
        self._tell([(each, True) for each in (*above, *owner)] or [(path, False)])

    def delete(self, path: str) -> None:
        """Deletes a node as another program would."""
        self.zxid += 1
        del self.nodes[path]
        self._tell([(path, True)])

    def expire(self, session: ModelSession) -> None:
        """Ends a session, and deletes its ephemeral nodes."""
        self.zxid += 1
        gone = [path for path, node in self.nodes.items() if node.session_id == session.session_id]
        for path in gone:
            del self.nodes[path]
        session.is_expired = True
        self._tell([(path, True) for path in gone])

    # Transactions.

    def multi(self, operations: Sequence[Operation], session_id: int) -> tuple[Written | None, ...] | Refused:
        """Does all of the operations or none."""
        nodes, created = dict(self.nodes), dict(self._created_below)
        self.zxid += 1
        written: list[Written | None] = []
        for index, operation in enumerate(operations):
            reason = self._refusal(operation)
            if reason is not None:
                self.nodes, self._created_below = nodes, created
                return Refused(index, operation.path, reason)
            written.append(self._do(operation, session_id))
        self._tell(_changes(operations, written))
        return tuple(written)

    def children(self, path: str) -> list[str]:
        """Returns the names of the nodes right below a node."""
        prefix = path.rstrip("/") + "/"
        return sorted(
            one[len(prefix) :] for one in self.nodes if one.startswith(prefix) and "/" not in one[len(prefix) :]
        )

    def _refusal(self, operation: Operation) -> Reason | None:
        node = self.nodes.get(operation.path)
        if isinstance(operation, Create):
            parent = _parent(operation.path)
            if parent not in {"", *self.nodes}:
                return Reason.NO_NODE
            return None if node is None or operation.sequential else Reason.NODE_EXISTS
        if node is None:
            return Reason.NO_NODE
        if operation.version not in {ANY_VERSION, node.version}:
            return Reason.BAD_VERSION
        return Reason.NOT_EMPTY if isinstance(operation, Delete) and self.children(operation.path) else None

    def _do(self, operation: Operation, session_id: int) -> Written | None:
        match operation:
            case Create(path, data, sequential, ephemeral):
                number = f"{self._created_below.get(_parent(path), 0):010d}" if sequential else ""
                self._create(path + number, data, session_id if ephemeral else NO_SESSION)
                return Written(path + number, 0)
            case SetData(path, data):
                self._set(path, data)
                return Written(path, self.nodes[path].version)
            case Delete(path):
                del self.nodes[path]
                self._created_below.pop(path, None)
            case Check():
                pass
        return None

    def _create(self, path: str, data: bytes, session_id: int) -> None:
        parent = _parent(path)
        self._created_below[parent] = self._created_below.get(parent, 0) + 1
        self.nodes[path] = Node(data, 0, self.zxid, session_id, self.zxid)

    def _set(self, path: str, data: bytes) -> None:
        before = self.nodes[path]
        self.nodes[path] = before._replace(data=data, version=before.version + 1, modified_zxid=self.zxid)

    def _tell(self, changes: Iterable[tuple[str, bool]]) -> None:
        for path, comes_or_goes in changes:
            for listener in self._listeners:
                listener.changed(path, comes_or_goes=comes_or_goes)


class ModelSession:
    """One client of the model.

    Args:
        zookeeper: the ensemble.
        session_id: the id of the first session; None for one that no other has.
        on_change: told of changed paths that were read with a watch, or None for "read all again".
        call_later: calls what tells `on_change`; None to tell at once.
    """

    def __init__(
        self,
        zookeeper: ModelZooKeeper,
        session_id: int | None = None,
        on_change: OnChange | None = None,
        call_later: CallLater | None = None,
    ) -> None:
        self.zookeeper = zookeeper
        self.session_id = zookeeper.new_session_id() if session_id is None else session_id
        self.is_lost = False
        self.is_expired = False
        self._on_change = on_change
        self._call_later = call_later or _at_once
        self._registrations: dict[str, tuple[bytes, OnRegistered]] = {}
        self._watched: set[str] = set()
        self._watched_children: set[str] = set()
        self._changed: set[str] = set()
        if on_change is not None:
            zookeeper.join(self)

    # The connection.

    @property
    def trouble(self) -> str | None:
        """What is wrong with the connection; None where it is whole."""
        return "the connection is lost" if self.is_lost else None

    def disconnect(self) -> None:
        """Loses the connection; the watches are forgotten."""
        self.is_lost = True
        self._watched.clear()
        self._watched_children.clear()

    def connect(self) -> None:
        """Connects again, as another session where the ensemble has ended this one."""
        self.is_lost = False
        if self.is_expired:
            self.is_expired = False
            self.session_id = self.zookeeper.new_session_id()
        self._note(EVERYTHING)

    def close(self) -> None:
        """Ends the session, and with it its ephemeral nodes."""
        self.zookeeper.expire(self)
        self.disconnect()
        self._on_change = None

    def register(
        self,
        path: str,
        data: bytes,
        *,
        wait_ms: int,  # noqa: ARG002  ZooKeeperSession waits so long
        on_registered: OnRegistered = lambda _: None,
    ) -> bytes | None:
        """Holds an ephemeral node, also in later sessions; returns the data of another's node, without a wait."""
        holder = self._hold(path, data, on_registered)
        if holder is None:
            self._registrations[path] = (data, on_registered)
        return holder

    def holds(self, node: Node) -> bool:
        """Returns whether a node goes with this session."""
        return node.session_id == self.session_id

    # Reads.

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Returns whether there is a node; with `watch` its creation is told, too."""
        self._watched |= {path} if watch else set()
        return path in self._there()

    def get(self, path: str) -> bytes | None:
        """Returns the data of a node."""
        return self.get_many([path])[0]

    def get_many(self, paths: Sequence[str], *, watch: bool = False) -> list[bytes | None]:
        """Returns the data of nodes."""
        return [None if node is None else node.data for node in self.nodes(paths, watch=watch)]

    def nodes(self, paths: Sequence[str], *, watch: bool = False) -> list[Node | None]:
        """Returns nodes; with `watch` those that exist are watched."""
        there = self._there()
        if watch:
            self._watched.update(path for path in paths if path in there)
        return [there.get(path) for path in paths]

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Returns the names of the nodes right below a node; with `watch` a node that exists is watched."""
        if watch and path in self._there():
            self._watched_children.add(path)
        self._there()
        return self.zookeeper.children(path)

    def tree(self, path: str) -> list[str]:
        """Returns a node and all below it, children before their parents."""
        found = [one for one in self._there() if one == path or one.startswith(f"{path}/")]
        return sorted(found, reverse=True)

    # Writes.

    def ensure(self, path: str) -> None:
        """Makes a persistent node and its parents, unless they exist."""
        for each in (*_parents(path), path):
            self.create(each, b"")

    def create(self, path: str, data: bytes) -> bool:
        """Creates a node; returns False if it exists already."""
        return not isinstance(self.multi([Create(path, data)]), Refused)

    def put(self, path: str, data: bytes) -> None:
        """Replaces the data of a node; the node and its parents are made if they do not exist."""
        if self.transact([SetData(path, data)]) is not None:
            self.ensure(_parent(path))
            self.create(path, data)

    def transact(self, operations: Sequence[Operation]) -> str | None:
        """Does all of the operations or none; returns None if done, else the path of the operation that was refused."""
        answer = self.multi(operations)
        return answer.path if isinstance(answer, Refused) else None

    def multi(self, operations: Sequence[Operation]) -> tuple[Written | None, ...] | Refused:
        """Does all of the operations or none; raises ZooKeeperError if the connection or the session is lost."""
        self._there()
        return self.zookeeper.multi(operations, self.session_id)

    def _there(self) -> dict[str, Node]:
        if self.is_lost or self.is_expired:
            raise ZooKeeperError("the connection is lost")
        return self.zookeeper.nodes

    # Changes.

    def changed(self, path: str, *, comes_or_goes: bool) -> None:
        """Hears of a node that was set, or that has come or gone; each watch tells once."""
        if path in self._watched or (comes_or_goes and path in self._watched_children):
            self._watched.discard(path)
            if comes_or_goes:
                self._watched_children.discard(path)
            self._note(path)
        parent = _parent(path)
        if comes_or_goes and parent in self._watched_children:
            self._watched_children.discard(parent)
            self._note(parent)

    def _note(self, path: str) -> None:
        is_told_already = bool(self._changed)
        self._changed.add(path)
        if not is_told_already:
            self._call_later(self._act)

    def _act(self) -> None:
        changed, self._changed = self._changed, set()
        if self._on_change is None or self.is_lost or not changed:
            return
        everything = EVERYTHING in changed
        lost = {path: one for path, one in self._registrations.items() if everything or path in changed}
        refused = [path for path, (data, told) in lost.items() if self._hold(path, data, told)]
        self._on_change(None if everything else frozenset(changed))
        if refused:
            self._note(EVERYTHING)

    def _hold(self, path: str, data: bytes, on_registered: OnRegistered) -> bytes | None:
        while True:
            self.multi([Create(path, data, ephemeral=True)])
            (found,) = self.nodes([path], watch=True)
            if found is None:
                raise ZooKeeperError(f"{path} is not created")
            if self.holds(found):
                on_registered(found.created_zxid)
                return None
            if found.data != data:
                return found.data
            self.multi([Delete(path, found.version)])


def _changes(operations: Sequence[Operation], written: Sequence[Written | None]) -> list[tuple[str, bool]]:
    """Returns the paths that operations changed, and whether the node has come or gone with that."""
    changes = []
    for operation, outcome in zip(operations, written, strict=True):
        if not isinstance(operation, Check):
            changes.append((operation.path if outcome is None else outcome.path, not isinstance(operation, SetData)))
    return changes


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _parents(path: str) -> list[str]:
    """Returns the paths above a node, the topmost first."""
    names = path.split("/")
    return ["/".join(names[:end]) for end in range(2, len(names))]


def _at_once(act: Callable[[], None]) -> None:
    act()
