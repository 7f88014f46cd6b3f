"""Sessions with a ZooKeeper that speaks TLS and knows its clients, by a password or by a certificate."""

import json
import logging
import queue
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from millrace.errors import ZooKeeperError
from millrace.testing.broker import BrokerProcess
from millrace.zk.operations import Create
from millrace.zk.security import UNSECURED, Access, ZooKeeperSecurity
from millrace_support.waiting import awaited
from millrace_support.zookeeper_security import USER_PASSWORD, SecuredZooKeeper
from millrace_support.zookeeper_sessions import SESSION_TIMEOUT_MS, expire, started

SOON_MS = 3_000
WAIT_S = 240


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    with SecuredZooKeeper(tmp_path_factory.mktemp("secured")) as server:
        yield server


@pytest.fixture
def chroot():
    return f"/tests/{uuid4().hex}"


def secured_by(properties):
    return ZooKeeperSecurity.from_properties(properties)


def refused(address, security, waits_ms=SOON_MS):
    """Returns why a session does not start within `waits_ms`."""
    opening = started(address, connection_timeout_ms=waits_ms, security=security)
    with pytest.raises(ZooKeeperError) as raised, opening:
        pass
    return str(raised.value)


def refused_because(reason, address, security):
    """Returns why a session does not start, once that names the reason; a slow handshake is tried again."""

    def look():
        message = refused(address, security)
        return message if reason in message else None

    return awaited(look, f"a session is refused: {reason}")


def refused_login(address, security):
    """Returns why a session does not start whose login is refused, which needs no wait for a limit."""
    return refused(address, security, waits_ms=WAIT_S * 1000)


def acls_of(secured, path):
    """The access to a node as ZooKeeper tells it, without the version: {(scheme, identity): permissions}."""
    client = KazooClient(hosts=secured.plain_address, timeout=SESSION_TIMEOUT_MS / 1000)
    client.start(WAIT_S)
    try:
        return {(one.id.scheme, one.id.id): one.perms for one in client.get_acls(path)[0]}
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("keystore", ["", "client.pem", "client.p12"])
@pytest.mark.parametrize("ca", ["ca.pem", "ca.p12"])
def test_a_session_speaks_tls_by_keys_of_either_format(secured, chroot, keystore, ca):
    how = secured_by(secured.tls(keystore, ca))
    with started(secured.tls_address + chroot, security=how) as session:
        large = b"x" * 900_000  # more than one record of TLS
        session.put("/a/b", large)
        assert session.get("/a/b") == large


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3", "TLS"])
def test_protocols_are_those_that_are_named(secured, chroot, protocol):
    how = secured_by({**secured.tls(), "zookeeper.ssl.protocol": protocol})
    with started(secured.tls_address + chroot, security=how) as session:
        assert session.exists("/") is True


@pytest.mark.parametrize(("over_tls", "by_password"), [(False, True), (True, True), (True, False)])
def test_nodes_belong_to_the_identity_that_makes_them(secured, chroot, over_tls, by_password):
    properties = {
        **(secured.login() if by_password else {}),
        **(secured.tls("" if by_password else "client.pem") if over_tls else {}),
        "zookeeper.set.acl": "true",
    }
    address = (secured.tls_address if over_tls else secured.plain_address) + chroot
    identity = ("sasl", "kafka") if by_password else ("x509", "CN=kafka")
    with started(address, security=secured_by(properties)) as session:
        for path in ("/config/users/alice", "/consumers/g/offsets", "/delegation_token/tokens/one"):
            session.ensure(path)
        session.multi([Create("/controller", b"1", ephemeral=True), Create("/config/changes", b"")])
        world = {("world", "anyone"): 1}
        mine = {identity: 31}
        assert acls_of(secured, chroot) == mine | world
        assert acls_of(secured, f"{chroot}/config") == mine | world
        assert acls_of(secured, f"{chroot}/controller") == mine | world
        assert acls_of(secured, f"{chroot}/config/changes") == mine | world
        assert acls_of(secured, f"{chroot}/consumers") == {("world", "anyone"): 31}
        assert acls_of(secured, f"{chroot}/consumers/g") == mine | world
        for path in ("/config/users", "/config/users/alice", "/delegation_token/tokens/one"):
            assert session.access_of(path) is Access.SECRET
        assert acls_of(secured, f"{chroot}/delegation_token") == mine | world
    with started(secured.plain_address + chroot) as stranger:
        assert stranger.get("/config") == b""
        with pytest.raises(ZooKeeperError, match="forbids it to the identity of this session"):
            stranger.get("/config/users/alice")
        with pytest.raises(ZooKeeperError, match="forbids"):
            stranger.put("/config", b"x")
        stranger.put("/consumers/open", b"x")


def test_without_the_property_nodes_are_open(secured, chroot):
    with started(secured.plain_address + chroot, security=secured_by(secured.login())) as session:
        session.put("/config/users", b"x")
        assert session.access_of("/config/users") is Access.OPEN


@pytest.fixture
def wrong_login(secured, tmp_path):
    text = (secured.folder / "client.jaas").read_text().replace("zk ", "wrong ")
    (tmp_path / "wrong.jaas").write_text(text)
    return secured_by({"java.security.auth.login.config": str(tmp_path / "wrong.jaas")})


def test_a_wrong_password_is_said_at_once_and_is_in_no_message(secured, wrong_login, caplog):
    how = wrong_login
    assert "secret" not in repr(how)
    with caplog.at_level(logging.DEBUG):
        message = refused_login(secured.plain_address, how)
    assert "refuses the login of 'kafka'" in message
    assert "wrong " not in message + caplog.text
    assert USER_PASSWORD not in message + caplog.text


def test_a_wrong_password_is_said_where_the_session_ends_before_its_first_request(secured, wrong_login, monkeypatch):
    exists = KazooClient.exists_async

    def exists_after_the_end(client, path):
        assert client._connection.connection_stopped.wait(WAIT_S)
        return exists(client, path)

    monkeypatch.setattr(KazooClient, "exists_async", exists_after_the_end)
    assert "refuses the login of 'kafka'" in refused_login(secured.plain_address, wrong_login)


@pytest.mark.parametrize(
    ("keystore", "ca", "reason"),
    [("", "other_ca.pem", "certificate verify failed"), ("other.pem", "ca.pem", "certificate")],
)
def test_a_certificate_that_one_side_does_not_trust_is_said_at_the_start(secured, keystore, ca, reason):
    message = refused_because(reason, secured.tls_address, secured_by(secured.tls(keystore, ca)))
    assert f"no ZooKeeper answers at {secured.tls_address}" in message


def test_a_certificate_of_another_host_is_refused_unless_hosts_are_not_looked_at(secured, chroot):
    address = f"localhost:{secured.tls_port}"
    assert refused_because("Hostname mismatch", address, secured_by(secured.tls()))
    anywhere = {**secured.tls(), "zookeeper.ssl.endpoint.identification.algorithm": ""}
    with started(address + chroot, security=secured_by(anywhere)) as session:
        assert session.exists("/")


def test_without_tls_the_port_for_tls_does_not_answer(secured):
    assert "no ZooKeeper answers" in refused(secured.tls_address, UNSECURED)


def test_an_expired_session_registers_again_over_tls_and_with_its_login(secured, chroot):
    how = secured_by({**secured.tls(), **secured.login(), "zookeeper.set.acl": "true"})
    epochs = queue.SimpleQueue()
    with started(secured.tls_address + chroot, security=how) as session:
        session.ensure("/brokers/ids")
        assert session.register("/brokers/ids/1", b"me", wait_ms=0, on_registered=epochs.put) is None
        session_id, _ = session.client_id
        expire(secured.plain_address, session.client_id)
        assert epochs.get(timeout=WAIT_S) < epochs.get(timeout=WAIT_S)
        assert session.nodes(["/brokers/ids/1"])[0].session_id != session_id
        assert acls_of(secured, f"{chroot}/brokers/ids/1") == {("sasl", "kafka"): 31, ("world", "anyone"): 1}


def test_a_cluster_is_given_to_its_brokers_and_opened_again(secured, chroot, tmp_path):
    config = tmp_path / "zookeeper.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in {**secured.tls(), **secured.login()}.items()))
    options = ["--zookeeper", secured.tls_address + chroot, "--zookeeper-config", str(config)]
    commands = {name: ["millrace", "zookeeper", name, *options] for name in ("secure", "unsecure")}
    with started(secured.plain_address + chroot) as anyone:
        for path in ("/brokers/ids", "/config/users/alice", "/consumers/group"):
            anyone.ensure(path)
        assert printed([*commands["secure"], "--dry-run"]).startswith("would change 6 of 6 nodes\n")
        assert anyone.access_of("/config") is Access.OPEN
        assert printed(commands["secure"]).splitlines() == [
            "changed 6 of 6 nodes",
            "  4: its creator may do everything, and everyone may read it",
            "  2: its creator may do everything, and nobody else anything",
        ]
        assert acls_of(secured, f"{chroot}/brokers/ids") == {("sasl", "kafka"): 31, ("world", "anyone"): 1}
        assert anyone.access_of("/consumers/group") is Access.OPEN
        with pytest.raises(ZooKeeperError, match="forbids"):
            anyone.get("/config/users/alice")
        assert printed(commands["secure"]) == "changed 0 of 6 nodes\n"
        assert json.loads(printed([*commands["unsecure"], "--json"]))["open"] == 6
        assert anyone.get("/config/users/alice") == b""


def test_nodes_are_given_to_nobody_without_an_identity(tmp_path):
    config = tmp_path / "zookeeper.properties"
    config.write_text("zookeeper.ssl.client.enable=true\n")
    command = ["millrace", "zookeeper", "secure", "--zookeeper", "127.0.0.1:1", "--zookeeper-config", str(config)]
    command[0] = str(Path(sys.executable).with_name("millrace"))
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 1
    assert "there is no identity at ZooKeeper" in done.stderr


def test_commands_look_at_groups_of_a_secured_zookeeper(secured, chroot, tmp_path):
    config = tmp_path / "zookeeper.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in secured.tls().items()))
    with started(secured.plain_address + chroot) as anyone:
        anyone.ensure("/consumers/seen/ids")
    with BrokerProcess(tmp_path / "data") as broker:
        options = ["--zookeeper", secured.tls_address + chroot, "--zookeeper-config", str(config)]
        assert "seen" in printed(["millrace", "groups", "list", "--bootstrap", broker.bootstrap, *options])


def printed(command):
    command = [str(Path(sys.executable).with_name(command[0])), *command[1:]]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=WAIT_S).stdout
