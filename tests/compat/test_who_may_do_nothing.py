"""Whoever has logged in and may do nothing changes nothing, on the disk or in ZooKeeper, by any API in any version.

The rows are those of the comparison with Apache Kafka's authorizer, and with them requests that would do harm. They are
sent to a broker that has just been started, and to one with a topic, a group, a transactional id, users, a quota and a
token.
"""

import hashlib
from contextlib import ExitStack
from uuid import UUID, uuid4

import pytest
from differential.guarded import GROUP, OFFSETS, ROWS, TOPIC, TXN, with_id
from differential.harmful import harmful
from differential.wire import ConnectionClosedError, Wire
from kazoo.client import KazooClient
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from millrace.records.record import NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace_broker.handlers.cluster_registry import CLUSTER_APIS
from millrace_broker.handlers.registry import APIS
from millrace_support.kafka_messages import Messages

PASSWORDS = {"admin": "all", "nobody": "nothing"}
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{LOGIN} username="admin" password="all" user_admin="all" user_nobody="nothing";'
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "delegation.token.secret.key": "tokens are made by this",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
}
TIMEOUT_S = 60
OF_ONESELF = ("CreateDelegationToken", {"maxLifetimeMs": -1})  # a token of one's own, which everybody may have


class Client:
    """A user who has logged in, and logs in again where the broker hangs up."""

    def __init__(self, messages, bootstrap, user):
        self._messages, self._bootstrap, self._user = messages, bootstrap, user
        self._log_in()

    def _log_in(self):
        self._wire = Wire(self._messages, self._bootstrap)
        token = f"\0{self._user}\0{PASSWORDS[self._user]}".encode()
        self.call("SaslHandshake", 1, mechanism="PLAIN")
        assert self.call("SaslAuthenticate", 2, authBytes=token)["errorCode"] == 0

    def call(self, api, version, /, **fields):
        return self._wire.receive(self._wire.send(api, version, fields))

    def ask(self, row, version):
        """Sends a row, and waits for the answer, or for the end of the connection where there is none."""
        known = {one.name for one in self._messages.definition(f"{row.api}Request", version).fields}
        try:
            self.call(row.api, version, **{name: value for name, value in row.fields.items() if name in known})
        except ConnectionClosedError:
            self._log_in()

    @retry(retry=retry_if_result(lambda answer: answer is None), stop=stop_after_delay(60), wait=wait_fixed(0.05))
    def until_done(self, api, version, /, **fields):
        """Repeats a request until it is answered without an error; its answer."""
        answer = self.call(api, version, **fields)
        return None if any(codes(answer)) else answer


def codes(answer):
    """Every error code of an answer."""
    if isinstance(answer, dict):
        yield from (value for name, value in answer.items() if name == "errorCode")
        answer = list(answer.values())
    if isinstance(answer, list):
        for one in answer:
            yield from codes(one)


class Home:
    """A broker, what it keeps, and the rows for it."""

    def __init__(self, messages, zookeeper, folder):
        self.messages, self._folder = messages, folder
        self._chroot = f"/{uuid4().hex}"
        self._zookeeper = KazooClient(zookeeper.address, timeout=TIMEOUT_S)
        self.broker = BrokerProcess(folder, zookeeper=f"{zookeeper.address}{self._chroot}", properties=PROPERTIES)
        self._zookeeper.start(TIMEOUT_S)
        self.admin = Client(messages, self.broker.bootstrap, "admin")
        self.topic_id, self.hmac = UUID(int=7), b"h" * 64
        self._await_start()

    def close(self):
        self._zookeeper.stop()
        self._zookeeper.close()
        self.broker.close()

    def _await_start(self):
        """Waits for the controller, which tells of brokers once it has written all, and for the admin endpoint."""
        while not self.admin.call("Metadata", 7, topics=[])["brokers"]:
            pass
        assert self.broker.admin_url

    def put_to_use(self):
        """Makes something of each kind, and waits until all of it is written."""
        admin, topic = self.admin, {"name": TOPIC, "numPartitions": 1, "replicationFactor": 1}
        admin.until_done("CreateTopics", 5, topics=[topic], timeoutMs=60_000)
        [described] = admin.until_done("Metadata", 12, topics=[{"name": TOPIC}])["topics"]
        self.topic_id = described["topicId"]
        records = {"index": 0, "records": encode_batch([NewRecord(b"value")])}
        admin.call("Produce", 3, acks=-1, timeoutMs=60_000, topicData=[{"name": TOPIC, "partitionData": [records]}])
        admin.until_done("FindCoordinator", 4, coordinatorKeys=[GROUP])
        admin.until_done("OffsetCommit", 2, groupId=GROUP, topics=OFFSETS)
        admin.until_done("FindCoordinator", 4, keyType=1, coordinatorKeys=[TXN])
        admin.until_done("InitProducerId", 0, transactionalId=TXN, transactionTimeoutMs=1000)
        carol = {"name": "carol", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16, "saltedPassword": b"p" * 32}
        admin.until_done("AlterUserScramCredentials", 0, upsertions=[carol])
        quota = {"entity": [{"entityType": "user", "entityName": "carol"}],
                 "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]}  # fmt: skip
        admin.until_done("AlterClientQuotas", 0, entries=[quota], validateOnly=False)
        self.hmac = admin.until_done("CreateDelegationToken", 1, maxLifetimeMs=-1)["hmac"]

    def rows(self):
        """Yields a row and a version for each API in each version that the broker serves."""
        rows = {}
        for row in (*ROWS, *harmful(self.topic_id, self.hmac)):
            if (row.api, row.fields) != OF_ONESELF:
                of_broker = row._replace(fields=with_id(row.fields, self.topic_id))
                rows.setdefault(self.messages.api_key(row.api), []).append(of_broker)
        kafkas = {key: api for key, api in {**APIS, **CLUSTER_APIS}.items() if api.is_told}
        for key, api in kafkas.items():
            for version in range(api.versions.minimum, api.versions.maximum + 1):
                found = [row for row in rows[key] if row.first <= version <= row.last]
                assert found, f"no row for {api.key.name} v{version}"
                yield from ((row, version) for row in found)

    def kept(self):
        """What is on the disk, but for checkpoints, which are written from time to time, and in ZooKeeper."""
        files = {
            str(path.relative_to(self._folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            for path in self._folder.rglob("*")
            if "checkpoint" not in path.name  # nor what one is before it is in its place
        }
        return files, dict(self._nodes(self._chroot))

    def _nodes(self, path):
        data, stat = self._zookeeper.get(path)
        yield path, (data, stat.czxid, stat.version, stat.cversion, stat.aversion)
        for child in self._zookeeper.get_children(path):
            yield from self._nodes(f"{path}/{child}")


@pytest.fixture(scope="module")
def homes(find_peer, zookeeper, tmp_path_factory):
    messages = Messages([find_peer("3.9"), find_peer("4.1")])
    with ExitStack() as closing:
        found = {name: Home(messages, zookeeper, tmp_path_factory.mktemp("kept") / name) for name in ("new", "in use")}
        for home in found.values():
            closing.callback(home.close)
        found["in use"].put_to_use()
        yield found


@pytest.mark.parametrize("name", ["new", "in use"])
def test_nothing_changes(homes, name):
    home = homes[name]
    nobody = Client(home.messages, home.broker.bootstrap, "nobody")
    before = home.kept()
    sent = 0
    for row, version in home.rows():
        nobody.ask(row, version)
        sent += 1
    assert home.kept() == before
    assert sent > len(APIS) + len(CLUSTER_APIS)


def test_what_the_administrator_changes_is_seen(homes):
    """So the comparison above would have failed."""
    home = homes["in use"]
    files, nodes = home.kept()
    home.admin.until_done("AlterClientQuotas", 0, validateOnly=False, entries=[
        {"entity": [{"entityType": "user", "entityName": "carol"}],
         "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}]}])  # fmt: skip
    assert home.kept()[0] == files
    assert home.kept()[1] != nodes
    home.admin.until_done("OffsetCommit", 2, groupId=GROUP, topics=OFFSETS)
    assert home.kept()[0] != files
