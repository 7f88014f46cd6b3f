"""The arguments and the results of handlers.

A handler runs on the event loop's thread, as soon as its request is read, and must not keep views of the request's
bytes. It returns the parts of the response; or a future of them where the response has to wait; or None where the
protocol has no response (Produce with acks=0). Where a handler itself has found that a quota is exceeded, it returns
the parts with their throttle time. A WireError that it raises closes the connection.

Each API lists the rights that its clients need (`guards`), and its handler checks these very guards before it does
anything. A broker with an authorizer does not start with an API that names none: an empty tuple says that everyone may
call it.

A request of an API that is `in_turn` is handled once all requests before it on its connection have their responses,
since others see what it does: a leader whose response waits behind its own long poll would learn of its assignment
last.

A request with many entries, or of an API that `is_long`, is handled in turns (`millrace.turns`), as is what a handler
returns as `InTurns`. It pauses where it checks a right, and where it says so by `pause`, `each` and `beside`. Others
are served meanwhile, so what they see must be whole there.

Where an API has `handle_all`, requests of one version that arrive together on one connection are handled together. It
returns the responses of `handle` in the order of the requests; a WireError in the last place ends the connection. One
that `has_many` entries, by its version and its bytes, is handled alone, by `handle`, in turns.

The operations that a client may do on a resource are told as bits, by the numbers of ACL operations (KIP-430). Without
an authorizer, they are all that the resource has.

Requests that have to wait before they are handled are kept in order by `InOrder`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from millrace.clock import Clock
from millrace.errors import (
    ClusterAuthorizationError,
    DelegationTokenAuthorizationError,
    ErrorCode,
    GroupAuthorizationError,
    MillraceError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
    WireError,
)
from millrace.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from millrace.turns import pause
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace_broker.cluster.acl_manager import AclManager
from millrace_broker.cluster.config_manager import ConfigManager
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_update import MetadataUpdate
from millrace_broker.cluster.producer_ids import ProducerIds
from millrace_broker.cluster.token_manager import TokenManager
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.groups.commits import ZooKeeperOffsets
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroups
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.quotas.client_quotas import ClientQuotas
from millrace_broker.replication.fetch_sessions import FetchSessions
from millrace_broker.replication.log_dir_mover import LogDirMover
from millrace_broker.replication.partition_roles import PartitionRoles
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.replication_quota import ReplicationQuota
from millrace_broker.replication.roles import ControllerFence
from millrace_broker.security.acls.authorizer import Access
from millrace_broker.security.authentication.credentials import Credentials
from millrace_broker.security.client_session import ClientSession
from millrace_broker.txns.admission import Admission
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from millrace_broker.controller.controller import Controller


Outcome = TypeVar("Outcome")


class InOrder(Generic[Outcome]):
    """Runs coroutines one at a time for each key, in the order of the `put` calls; different keys run concurrently."""

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Task[Outcome]] = {}

    def is_busy(self, key: Hashable) -> bool:
        """Returns whether a coroutine of this key still runs or waits, so that a new one would have to wait."""
        return key in self._last

    async def until_idle(self, key: Hashable) -> None:
        """Waits until no coroutine of this key runs or waits."""
        while (last := self._last.get(key)) is not None:
            await asyncio.wait((last,))

    def put(self, key: Hashable, work: Callable[[], Coroutine[object, object, Outcome]]) -> asyncio.Task[Outcome]:
        """Returns the task that calls and awaits `work` once all earlier work of the key has ended or failed."""
        task = asyncio.create_task(_after(self._last.get(key), work))
        self._last[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))
        return task

    def _ended(self, key: Hashable, task: asyncio.Task[Outcome]) -> None:
        if self._last.get(key) is task:
            del self._last[key]


async def _after(
    before: asyncio.Task[Outcome] | None, work: Callable[[], Coroutine[object, object, Outcome]]
) -> Outcome:
    if before is not None:
        await asyncio.wait((before,))
    return await work()


class Throttled(NamedTuple):
    """A response (`parts`) whose client has exceeded a quota, and for how long it is throttled, in milliseconds."""

    parts: Parts
    throttle_ms: int


Response = Parts | Throttled | None

Later = (
    asyncio.Future[Parts] | asyncio.Future[Parts | None] | asyncio.Future[Parts | Throttled] | asyncio.Future[Response]
)

Reply = Response | Later
Responses = list[Reply | WireError]


class InTurns(NamedTuple):
    """A handler's result where the reply takes long: `work` makes it, interrupted every few ms by other requests."""

    work: Callable[[], Reply]


NO_BODY = memoryview(b"")


class Request(NamedTuple):
    """One request of a client's session; `body`, its encoded fields, is a view that is valid while the handler runs."""

    version: int
    client_id: str | None
    body: memoryview
    session: ClientSession = ClientSession()

    def without_body(self) -> Request:
        """Returns a copy without the body, which may be kept when the handler has returned and the body is gone."""
        return self._replace(body=NO_BODY)


AUTHORIZATION_ERRORS: Mapping[ResourceType, type[MillraceError]] = {
    ResourceType.TOPIC: TopicAuthorizationError,
    ResourceType.GROUP: GroupAuthorizationError,
    ResourceType.CLUSTER: ClusterAuthorizationError,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationError,
    ResourceType.DELEGATION_TOKEN: DelegationTokenAuthorizationError,
    ResourceType.USER: DelegationTokenAuthorizationError,  # who asks for a token of that user
}


class Guard(NamedTuple):
    """The right that the client of an API needs: to do `operation` on a resource of `resource_type`.

    With `is_silent` a denial is not written to the audit log: another guard may permit the request, or the denied
    resource is only left out of the response.
    """

    api: ApiKey
    operation: AclOperation
    resource_type: ResourceType
    is_silent: bool = False

    def permits(self, services: Services, session: ClientSession, name: str = CLUSTER_NAME) -> bool:
        """Returns whether the client may do `operation` on the resource `name`; True where access is not restricted."""
        pause()
        access = services.authorizer
        return access is None or access.permits(
            session, self.operation, self.resource_type, name, self.api.name, tells_denied=not self.is_silent
        )

    def permits_on_any(self, services: Services, session: ClientSession) -> bool:
        """Returns whether the client may do `operation` on at least one resource of `resource_type`."""
        access = services.authorizer
        return access is None or access.permits_on_any(session, self.operation, self.resource_type, self.api.name)

    def check(self, services: Services, session: ClientSession, name: str = CLUSTER_NAME) -> None:
        """Raises an error like TopicAuthorizationError where the client may not do `operation` on this resource."""
        if not self.permits(services, session, name):
            raise self.denied()

    def denied(self) -> MillraceError:
        """Returns the error for a denied client, such as TopicAuthorizationError; it does not tell what exists."""
        return AUTHORIZATION_ERRORS[self.resource_type]("Authorization failed.")

    @property
    def error(self) -> ErrorCode:
        """Returns the error code for a denied client, such as TOPIC_AUTHORIZATION_FAILED."""
        return AUTHORIZATION_ERRORS[self.resource_type].code


UNGUARDED: tuple[Guard, ...] = ()


class Api(NamedTuple):
    """An API of the protocol, its served versions and its handler.

    `refuses` says, for docs/protocol.md, which requests get which error. `handle_all`, where there is one, handles
    several requests at once. With `in_turn` a request is handled only after all earlier ones of its connection are
    answered. `is_long`, and `has_many` for a version and a body, say that a request is handled a few milliseconds at a
    time. An API that is not `is_told` is Millrace's own, and not among those that ApiVersions tells.
    """

    key: ApiKey
    versions: VersionRange
    handle: Callable[[Services, Request], Reply | InTurns]
    refuses: str = ""
    handle_all: Callable[[Services, Sequence[Request]], Responses] | None = None
    guards: tuple[Guard, ...] | None = None
    in_turn: bool = False
    is_long: bool = False
    has_many: Callable[[int, memoryview], bool] | None = None
    is_told: bool = True


@dataclass(slots=True, kw_only=True)
class Services:
    """The parts of the broker that handlers use. `config` is replaced when a live property is changed."""

    config: BrokerConfig
    clock: Clock
    metadata: MetadataCache
    replicas: ReplicaManager
    topics: TopicManager
    groups: GroupCoordinator
    consumer_groups: ConsumerGroups
    zookeeper_offsets: ZooKeeperOffsets | None  # for OffsetCommit and OffsetFetch v0
    configs: ConfigManager
    acls: AclManager
    apis: Mapping[int, Api]
    broker_id: int
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    errors: Counter[tuple[int, int]]  # by API key and error code; given out at /metrics
    log_dirs: LogDirMover
    txns: TransactionCoordinator
    admission: Admission
    produced_in_order: InOrder[Reply]  # requests that wait, by transactional id or connection
    workers: Executor  # threads for what keeps the event loop too long
    fence: ControllerFence
    roles: PartitionRoles
    leader_quota: ReplicationQuota
    credentials: Credentials
    quotas: ClientQuotas
    tokens: TokenManager
    authorizer: Access | None = None  # everyone may do everything without one
    controller: Controller | None = None  # None for a standalone broker, as is `take_update`
    take_update: Callable[[MetadataUpdate], None] | None = None


NO_OPERATIONS = 0

_SHARED_OPERATIONS = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)

OPERATIONS = {
    ResourceType.TOPIC: frozenset((*_SHARED_OPERATIONS, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE)),
    ResourceType.CLUSTER: frozenset((*_SHARED_OPERATIONS, AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE)),
    ResourceType.GROUP: frozenset(
        (
            AclOperation.READ,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        )
    ),
}


def authorized_operations(
    services: Services, session: ClientSession, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> int:
    """Returns the operations that a client may do on a resource, as a bit set: 1 << the operation's code (KIP-430)."""
    operations = OPERATIONS[resource_type]
    if services.authorizer is not None:
        operations = services.authorizer.operations(session, operations, resource_type, name)
    return sum(1 << one for one in operations)
