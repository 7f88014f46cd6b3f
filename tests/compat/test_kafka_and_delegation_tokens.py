"""Delegation tokens that Apache Kafka and Millrace write to one ZooKeeper: each reads, renews and ends the other's."""

import asyncio
import json
import queue
import re
from base64 import b64decode
from dataclasses import replace
from uuid import uuid4

import pytest

from millrace.addresses import LOOPBACK
from millrace.clock import SystemClock
from millrace.ports import free_port
from millrace.zk import paths
from millrace.zk.security import Access, ZooKeeperSecurity
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_broker.cluster.token_manager import TokenManager
from millrace_broker.cluster.zookeeper_store import ZooKeeperStore
from millrace_broker.properties.security_config import TokenConfig
from millrace_broker.security.client_session import Principal
from millrace_broker.security.tokens import TokenRequest
from millrace_support.zookeeper_security import SecuredZooKeeper

WAIT_S = 60
KEY = "tokens are made by this"
ADMIN, BOB = Principal("User", "admin"), Principal("User", "bob")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    with SecuredZooKeeper(tmp_path_factory.mktemp("secured")) as server:
        yield server


class Ours:
    """A store of ours, the tokens in it, and the images that it tells of."""

    def __init__(self, address, security):
        self.images = queue.SimpleQueue()
        self.store = ZooKeeperStore(address, SystemClock(), security=security, keeps_tokens=True)
        self.store.start(self.images.put)
        config = TokenConfig.from_properties({"delegation.token.secret.key": KEY})
        self.tokens = TokenManager(config, self.store, SystemClock())

    def until(self, holds):
        image = self.store.image()
        while not holds(image.delegation_tokens):
            image = self.images.get(timeout=WAIT_S)
        return image.delegation_tokens

    def node(self, token_id):
        return json.loads(self.store.session.get(paths.delegation_token(token_id)))


class Theirs:
    """A broker of Kafka with SASL, and its tool."""

    def __init__(self, kafka, folder, secured, chroot):
        plain, self.address = (f"{LOOPBACK}:{free_port()}" for _ in range(2))
        users = f'{PLAIN} username="admin" password="a" user_admin="a" user_bob="b";'
        self.kafka = kafka
        self.client = folder / "client.properties"
        self.client.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={PLAIN} username="admin" password="a";\n'
        )
        login = f"-Djava.security.auth.login.config={secured.folder}/client.jaas"
        self.broker = KafkaBroker(
            replace(kafka, java_flags=(*kafka.java_flags, login)),
            folder / "kafka",
            zookeeper=f"{secured.plain_address}{chroot}",
            listen=plain,
            properties={
                "listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{self.address}",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
                "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
                "delegation.token.secret.key": KEY,
                "zookeeper.set.acl": "true",
            },
        )

    def tool(self, *arguments):
        return self.kafka.run(
            TOOL, "--bootstrap-server", self.address, "--command-config", str(self.client), *arguments
        )


def test_tokens_of_either_side_are_the_others_too(kafka, secured, tmp_path):
    chroot = f"/{uuid4().hex}"
    theirs = Theirs(kafka, tmp_path, secured, chroot)
    security = ZooKeeperSecurity.from_properties({**secured.login(), "zookeeper.set.acl": "true"})
    with theirs.broker:
        ours = Ours(secured.plain_address + chroot, security)
        try:
            asyncio.run(exchange(ours, theirs))
        finally:
            ours.store.close()


async def exchange(ours, theirs):
    printed = theirs.tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id = re.search(r"^(\S{22})\s", printed, re.MULTILINE)[1]
    their_hmac = b64decode(re.search(r"\S{88}", printed)[0])
    theirs_made = ours.until(lambda tokens: token_id in tokens)[token_id]
    assert (theirs_made.owner, theirs_made.renewers) == (ADMIN, (BOB,))
    assert ours.tokens.find(token_id).hmac == their_hmac

    mine = await ours.tokens.create(
        TokenRequest(requester=ADMIN, owner=ADMIN, renewers=(BOB,), max_lifetime_ms=-1)
    )  # fmt: skip
    kafkas, own = ours.node(token_id), ours.node(mine.token.token_id)
    changing = ("tokenId", "issueTimestamp", "maxTimestamp", "expiryTimestamp")
    assert {k: v for k, v in kafkas.items() if k not in changing} == {k: v for k, v in own.items() if k not in changing}
    assert kafkas.keys() == own.keys()
    lives = [one["maxTimestamp"] - one["issueTimestamp"] for one in (kafkas, own)]
    assert lives[0] == lives[1]
    for path in (paths.delegation_token(token_id), paths.delegation_token(mine.token.token_id)):
        assert ours.store.session.access_of(path) is Access.SECRET
    changes = [ours.store.session.get(f"{paths.TOKEN_CHANGES}/{one}") for one in changes_of(ours)]
    assert changes == [token_id.encode(), mine.token.token_id.encode()]

    assert mine.token.token_id in await seen_by_kafka(theirs, mine.token.token_id, is_there=True)
    secret = re.search(
        rf"{re.escape(mine.token.token_id)}\s+(\S+)", theirs.tool("--describe", "--owner-principal", "User:admin")
    )[1]
    assert b64decode(secret) == mine.hmac

    theirs.tool("--renew", "--renew-time-period", "3600000", "--hmac", secret)
    ours.until(lambda tokens: tokens[mine.token.token_id].expiry_ms != mine.token.expiry_ms)
    assert await ours.tokens.expire(BOB, their_hmac, -1) > 0
    await seen_by_kafka(theirs, token_id, is_there=False)
    theirs.tool("--expire", "--expiry-time-period", "-1", "--hmac", secret)
    ours.until(lambda tokens: not tokens)


def changes_of(ours):
    return sorted(ours.store.session.children(paths.TOKEN_CHANGES))


async def seen_by_kafka(theirs, token_id, *, is_there):
    """What Kafka's tool lists once it has, or has no more, a token: its broker hears of changes a little later."""
    async with asyncio.timeout(WAIT_S):
        while (token_id in (printed := theirs.tool("--describe", "--owner-principal", "User:admin"))) is not is_there:  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(0.05)
    return printed
