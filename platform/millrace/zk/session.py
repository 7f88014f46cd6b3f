"""A session with ZooKeeper, over kazoo's client (`connects`).

It adds to kazoo's client: every call ends in bounded time; a server that accepts a connection without answering on it,
as a starting server does, does not use up the session's timeout; ephemeral nodes registered here are made again after
the session has expired, or another has deleted them; the listener is told what to read again; each node is made with
the access that `millrace.zk.security` says.

Watches are one-shot, and kazoo forgets them whenever the connection breaks. So after every reconnect the
listener is called with None, which means: read everything again, and set the watches by that. Otherwise it gets the
paths that changed. Calls come from one thread that the session owns (never from kazoo's, which hang when they
wait for ZooKeeper), and changes that come meanwhile are gathered, each path once.

An ephemeral node that exists already is ours only if it has our session. One of another session with exactly our data
was left by an expired session of ours: it is deleted and made again, as ours would go with that session (KAFKA-7165,
KAFKA-14845). Any other may be that of a killed process, whose end is waited for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, assert_never

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from millrace.clock import Clock
from millrace.errors import ZooKeeperError, is_unforeseen
from millrace.zk import paths
from millrace.zk.connects import RETRY_INTERVAL_S, Connects, new_client, patiently
from millrace.zk.operations import FIRST_VERSION, Check, Create, Delete, Operation, Reason, Refused, SetData, Written
from millrace.zk.security import UNSECURED, Access, ZooKeeperSecurity

logger = logging.getLogger(__name__)

OnChange = Callable[[frozenset[str] | None], None]
OnRegistered = Callable[[int], None]
READS_IN_FLIGHT = 500
PUTS = 10
EVERYTHING = ""
TROUBLES = {
    KazooState.SUSPENDED: "the connection to ZooKeeper at {} is lost, and the session may be",
    KazooState.LOST: "the session with ZooKeeper at {} has expired",
    KazooState.CONNECTED: "ZooKeeper at {} is connected again, and what it holds is being registered and read again",
}


REASONS = {
    BadVersionError: Reason.BAD_VERSION,
    NodeExistsError: Reason.NODE_EXISTS,
    NoNodeError: Reason.NO_NODE,
    NotEmptyError: Reason.NOT_EMPTY,
}
ACLS = {
    Access.OPEN: OPEN_ACL_UNSAFE,
    Access.CREATORS: CREATOR_ALL_ACL + READ_ACL_UNSAFE,
    Access.SECRET: CREATOR_ALL_ACL,
}
FORBIDDEN = "the node's access forbids it to the identity of this session (NoAuthError)"
READ = 1  # the bit of a permission to read


class Node(NamedTuple):
    """A node: its data and how often that was set, the transactions that made and last set it, its session or 0."""

    data: bytes
    version: int
    created_zxid: int
    session_id: int
    modified_zxid: int


class _Registration:
    """An ephemeral node that the session registers, and the function to call when the node was created."""

    def __init__(self, data: bytes, on_registered: OnRegistered) -> None:
        self.data = data
        self._on_registered = on_registered
        self._told_zxid = 0
        self._telling = threading.Lock()

    def tell(self, created_zxid: int) -> None:
        """Calls that function with the id of the creating transaction, unless it was called for this or a later one."""
        with self._telling:
            if created_zxid > self._told_zxid:
                self._on_registered(created_zxid)
                self._told_zxid = created_zxid


class ZooKeeperSession:
    """One client of one ensemble. Thread-safe; every call may raise ZooKeeperError.

    Raises InvalidConfigError for a `connect` that names no servers.

    Args:
        connect: `HOST:PORT[,HOST:PORT…][/chroot]`; the chroot is made if it is not there.
        session_timeout_ms: ZooKeeper deletes the session's ephemeral nodes if it hears nothing for so long.
        connection_timeout_ms: how long `start` waits.
        on_change: called with the changed paths that were read with a watch, or None for "read all again".
        security: TLS, login and access; none of them unless given.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        on_change: OnChange,
        clock: Clock,
        security: ZooKeeperSecurity = UNSECURED,
    ) -> None:
        self._connect = connect
        self._session_timeout_s = session_timeout_ms / 1000
        self._connection_timeout_s = connection_timeout_ms / 1000
        self._on_change = on_change
        self._clock = clock
        self._security = security
        self._client = new_client(connect, self._session_timeout_s, security)
        self._connects = Connects(self._client, self._session_timeout_s)
        self._registrations: dict[str, _Registration] = {}
        self._work = threading.Condition()
        self._changed: set[str] = set()
        self._closed = False
        self._trouble: str | None = None
        self._worker: threading.Thread | None = None

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """The session's id and password; None while there is no connection."""
        identity: tuple[int, bytes] | None = self._client.client_id
        return identity

    def start(self) -> None:
        """Connects; raises ZooKeeperError where nothing answers in time, with the reason of the last failure."""
        if not self._client.start_async().wait(self._connection_timeout_s):
            self.close()
            if self._connects.login_refused:
                raise self._refused_login()
            waited_ms = round(self._connection_timeout_s * 1000)
            failure = "" if self._connects.failure is None else f": {self._connects.failure}"
            raise ZooKeeperError(f"no ZooKeeper answers at {self._connect} (waited {waited_ms} ms){failure}")
        self._check_login()
        self._client.add_listener(self._state_changed)
        patiently(self._make_chroot, self._connection_timeout_s)
        self._worker = threading.Thread(target=self._run, name="zookeeper-session", daemon=True)
        self._worker.start()

    @property
    def timeout_ms(self) -> int:
        """The session's timeout as ZooKeeper has granted it, which may be less than what was asked for."""
        return self._connects.granted_timeout_ms

    @property
    def trouble(self) -> str | None:
        """The problem as a sentence, from a lost connection until all is registered and read again; else None."""
        return self._trouble

    def confirm(self) -> int | None:
        """Returns the session's id once the ensemble's leader has confirmed it; None if it has changed meanwhile.

        A read would not do: a server that has lost its leader answers it from its own memory for a while.
        """
        before = self.client_id
        self._wait(self._client.sync_async("/"), "/")
        return before[0] if before is not None and before == self.client_id else None

    def close(self) -> None:
        """Ends the session, by which ZooKeeper deletes its ephemeral nodes."""
        with self._work:
            self._closed = True
            self._work.notify()
        try:
            self._client.stop()
            self._client.close()
        except KazooException as error:
            logger.warning("the session with %s ends by its timeout: %s", self._connect, error)
        if self._worker is not None and self._worker is not threading.current_thread():
            self._worker.join()

    def ensure(self, path: str) -> None:
        """Makes a persistent node and its parents, unless they exist."""
        if self.exists(path):
            return
        if parent := paths.parent(path):
            self.ensure(parent)
        answer = self.multi([Create(path)])
        if isinstance(answer, Refused) and answer.reason is not Reason.NODE_EXISTS:
            raise ZooKeeperError(f"{path} is not created: {answer.reason.value}")

    def get(self, path: str) -> bytes | None:
        """Returns the data of a node; None if there is no such node."""
        return self.get_many([path])[0]

    def get_many(self, paths: Sequence[str], *, watch: bool = False) -> list[bytes | None]:
        """Returns many nodes' data, None for missing nodes, by concurrent reads; `watch` watches existing nodes."""
        return [None if node is None else node.data for node in self.nodes(paths, watch=watch)]

    def nodes(self, paths: Sequence[str], *, watch: bool = False) -> list[Node | None]:
        """Returns many nodes, None for missing ones, by concurrent reads; with `watch` existing ones are watched."""
        watcher = self._node_changed if watch else None
        answers: list[Node | None] = []
        for begin in range(0, len(paths), READS_IN_FLIGHT):
            window = paths[begin : begin + READS_IN_FLIGHT]
            waiting = [self._client.get_async(path, watch=watcher) for path in window]
            for path, result in zip(window, waiting, strict=True):
                answer = self._wait(result, path, missing_ok=True)
                answers.append(None if answer is None else _node(*answer))
        return answers

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Returns whether there is a node; with `watch` its next creation, deletion or change of data is reported."""
        watcher = self._node_changed if watch else None
        return self._wait(self._client.exists_async(path, watch=watcher), path) is not None

    def get_with_version(self, path: str) -> tuple[bytes, int] | None:
        """Returns the data of a node and how often it was set; None if there is no such node."""
        found = self._wait(self._client.get_async(path), path, missing_ok=True)
        return None if found is None else (bytes(found[0] or b""), int(found[1].version))

    def replace(self, path: str, data: bytes, version: int) -> bool:
        """Replaces a node's data if the node still has this `version`; returns whether it was replaced."""
        try:
            self._result(self._client.set_async(path, data, version))
        except BadVersionError:
            return False
        except (KazooException, KazooTimeoutError) as error:
            raise self._error(path, error) from error
        return True

    def next_version(self, path: str) -> int:
        """Writes empty data to a node, made if missing, and returns its new version, a number that nobody else gets."""
        self.ensure(path)
        return int(self._wait(self._client.set_async(path, b""), path).version)

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Returns the names of a node's children, [] for a missing node; with `watch` their next change is reported."""
        result = self._client.get_children_async(path, watch=self._node_changed if watch else None)
        return self._wait(result, path, missing_ok=True) or []

    def access_of(self, path: str) -> Access | None:
        """Returns what a node's ACL allows everyone; None if there is no such node."""
        found = self._wait(self._client.get_acls_async(path), path, missing_ok=True)
        if found is None:
            return None
        permissions = max((one.perms for one in found[0] if one.id.scheme == "world"), default=0)
        return Access.OPEN if permissions > READ else Access.CREATORS if permissions else Access.SECRET

    def set_access(self, path: str, access: Access) -> bool:
        """Sets a node's ACL, with this session's identity as the creator; returns whether the node exists."""
        return self._wait(self._client.set_acls_async(path, ACLS[access]), path, missing_ok=True) is not None

    def age_ms(self, path: str) -> int | None:
        """Returns the milliseconds since a node was made; None without the node.

        The time now is that of this machine's clock, the time when the node was made that of ZooKeeper's.
        """
        stat = self._wait(self._client.exists_async(path), path)
        return None if stat is None else self._clock.now_ms() - stat.ctime

    def tree(self, path: str) -> list[str]:
        """Returns a node and all below it, children before their parents; empty if there is no such node."""
        below = [node for child in self.children(path) for node in self.tree(f"{path}/{child}")]
        return [*below, path] if below or self.get(path) is not None else []

    def create(self, path: str, data: bytes) -> bool:
        """Makes a persistent node; returns False if it exists already."""
        return self.transact([Create(path, data)]) is None

    def put(self, path: str, data: bytes) -> None:
        """Replaces the data of a node; the node and its parents are made if they do not exist.

        Nobody sees the node without its data, so a node that somebody else makes or deletes meanwhile is tried again.

        Raises:
            ZooKeeperError: Whenever it was tried, somebody else made the node or deleted it.
        """
        for _ in range(PUTS):
            if self.transact([SetData(path, data)]) is None:
                return
            if parent := paths.parent(path):
                self.ensure(parent)
            if self.transact([Create(path, data)]) is None:
                return
        raise ZooKeeperError(f"{path} is not written: others make and delete it again and again")

    def transact(self, operations: Sequence[Operation]) -> str | None:
        """Does all of the operations or none; returns None if done, else the path of the operation that was refused."""
        answer = self.multi(operations)
        return answer.path if isinstance(answer, Refused) else None

    def multi(self, operations: Sequence[Operation]) -> tuple[Written | None, ...] | Refused:
        """Does all of the operations or none.

        Returns:
            What each operation has written, None for a Delete and a Check; or which one was refused, and why.

        Raises:
            ZooKeeperError: One is refused for a reason that `Reason` does not have; or no answer has come, and then the
                operations may have been done.
        """
        request = self._client.transaction()
        for operation in operations:
            match operation:
                case Create(path, data, sequential, ephemeral):
                    acl = ACLS[self._security.access(path)]
                    request.create(path, data, acl=acl, ephemeral=ephemeral, sequence=sequential)
                case SetData(path, data, version):
                    request.set_data(path, data, version)
                case Delete(path, version):
                    request.delete(path, version)
                case Check(path, version):
                    request.check(path, version)
        outcomes = self._wait(request.commit_async(), "transaction")
        for index, (operation, outcome) in enumerate(zip(operations, outcomes, strict=True)):
            if isinstance(outcome, Exception) and not isinstance(outcome, RolledBackError):
                if type(outcome) not in REASONS:
                    raise self._error(operation.path, outcome)
                return Refused(index, operation.path, REASONS[type(outcome)])
        return tuple(map(_written, operations, outcomes))

    def register(
        self, path: str, data: bytes, *, wait_ms: int, on_registered: OnRegistered = lambda _: None
    ) -> bytes | None:
        """Holds an ephemeral node until `close`: it is made again after a session has expired, or another deletes it.

        Another session's node is waited for up to `wait_ms`, in case that session has lost its process.

        Args:
            path: The node's path.
            data: The node's data.
            wait_ms: How long another session's node is waited for.
            on_registered: Called with the id of the transaction that created the node (its czxid, which Kafka calls the
                broker epoch): here, and in the session's thread each time the node was created again, before the
                listener of changes is.

        Returns:
            None if this session holds the node, else the data of another session's node.
        """
        registration = _Registration(data, on_registered)
        deadline_s = self._clock.monotonic_s() + wait_ms / 1000
        while (holder := self._hold(path, registration)) is not None:
            remaining_s = deadline_s - self._clock.monotonic_s()
            if remaining_s <= 0:
                return holder
            logger.warning("%s is held by another session: %r; waiting %.0f s for its end", path, holder, remaining_s)
            self._await_deletion(path, remaining_s)
        with self._work:
            self._registrations[path] = registration
        return None

    def deregister(self, path: str) -> None:
        """Deletes a node that `register` holds, and makes it no more; raises ZooKeeperError."""
        with self._work:
            self._registrations.pop(path, None)
        (node,) = self.nodes([path])
        if node is not None and self.holds(node):
            self.multi([Delete(path, node.version)])

    def _check_login(self) -> None:
        """Raises ZooKeeperError if ZooKeeper has refused the login, which it tells only after it has connected."""
        if self._security.login is None:
            return
        try:
            self._result(self._client.exists_async("/"))
        except (KazooException, KazooTimeoutError) as error:
            self.close()
            # Kazoo says so itself only to a request that was made before it has given the session up.
            raise (self._refused_login() if self._connects.login_refused else self._error("/", error)) from error

    def _refused_login(self) -> ZooKeeperError:
        username = "" if self._security.login is None else f" of {self._security.login.username!r}"
        return ZooKeeperError(
            f"ZooKeeper at {self._connect} refuses the login{username}: see the section Client of "
            "java.security.auth.login.config, and the users that ZooKeeper knows"
        )

    def _make_chroot(self) -> None:
        chroot, self._client.chroot = self._client.chroot, ""
        try:
            if chroot:
                self.ensure(chroot)
        finally:
            self._client.chroot = chroot

    def holds(self, node: Node) -> bool:
        """Returns whether an ephemeral node belongs to the current session, not to an earlier one of this process."""
        identity = self.client_id
        return identity is not None and node.session_id == identity[0]

    def _hold(self, path: str, registration: _Registration) -> bytes | None:
        """Creates an ephemeral node; returns None, or the data of the node if another session has it already."""
        while True:
            answer = self.multi([Create(path, registration.data, ephemeral=True)])
            if isinstance(answer, Refused) and answer.reason is not Reason.NODE_EXISTS:
                raise ZooKeeperError(f"{path} is not created: {answer.reason.value}")
            (found,) = self.nodes([path], watch=True)
            if found is None:
                continue
            if self.holds(found):
                registration.tell(found.created_zxid)
                return None
            if found.data != registration.data:
                return found.data
            self.multi([Delete(path, found.version)])

    def _await_deletion(self, path: str, timeout_s: float) -> None:
        gone = threading.Event()
        if self._wait(self._client.exists_async(path, watch=lambda _: gone.set()), path) is not None:
            gone.wait(timeout_s)

    def _node_changed(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            self._note(event.path)

    def _state_changed(self, state: str) -> None:
        self._trouble = TROUBLES[state].format(self._connect)
        if not self._closed:
            logger.log(logging.INFO if state == KazooState.CONNECTED else logging.WARNING, "%s", self._trouble)
        if state == KazooState.CONNECTED:
            self._note(EVERYTHING)

    def _note(self, path: str) -> None:
        with self._work:
            self._changed.add(path)
            self._work.notify()

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._changed or self._closed)
                if self._closed:
                    return
                changed, self._changed = self._changed, set()
            try:
                self._act(changed)
            except Exception as error:  # whatever a listener raises, the next change must still be heard
                if self._closed:
                    return  # `close` has cut its calls off
                sentence = "a change is acted upon again in %.0f s: %s"
                logger.warning(sentence, RETRY_INTERVAL_S, error, exc_info=is_unforeseen(error))
                with self._work:
                    self._work.wait_for(lambda: self._closed, RETRY_INTERVAL_S)
                self._note(EVERYTHING)

    def _act(self, changed: set[str]) -> None:
        everything = EVERYTHING in changed
        with self._work:
            lost = {path: one for path, one in self._registrations.items() if everything or path in changed}
        refused = [path for path, one in lost.items() if self._hold(path, one) is not None]
        self._on_change(None if everything else frozenset(changed))
        if refused:
            raise ZooKeeperError(f"{', '.join(refused)}: taken by another session while ours was lost")
        if everything and self._client.state == KazooState.CONNECTED:
            self._trouble = None

    def _wait(self, result: Any, path: str, *, missing_ok: bool = False) -> Any:
        try:
            return self._result(result)
        except NoNodeError as error:
            if missing_ok:
                return None
            raise self._error(path, error) from error
        except (KazooException, KazooTimeoutError) as error:
            raise self._error(path, error) from error

    def _result(self, result: Any) -> Any:
        return result.get(timeout=self._session_timeout_s)

    def _error(self, path: str, error: Exception) -> ZooKeeperError:
        reason = FORBIDDEN if isinstance(error, NoAuthError) else f"{type(error).__name__} {error}".rstrip()
        return ZooKeeperError(f"ZooKeeper at {self._connect}, {path}: {reason}")


def _node(data: bytes | None, stat: Any) -> Node:
    """Returns the `Node` for kazoo's data and stat; a node without data, as Kafka makes some, gets b""."""
    return Node(bytes(data or b""), int(stat.version), int(stat.czxid), int(stat.ephemeralOwner), int(stat.mzxid))


def _written(operation: Operation, outcome: Any) -> Written | None:
    match operation:
        case Create():
            return Written(str(outcome), FIRST_VERSION)
        case SetData(path):
            return Written(path, int(outcome.version))
        case Delete() | Check():
            return None
        case _:
            assert_never(operation)
