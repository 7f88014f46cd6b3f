"""`millrace up --secure`: who has no account gets nowhere, users may do what they need, and no secret is shown."""

import re
import socket
import ssl
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.client.access import find_acls
from millrace.client.consumer.group_offsets import open_session
from millrace.client.producer import Producer
from millrace.clock import SystemClock
from millrace.errors import (
    BrokerError,
    BrokerUnreachableError,
    ErrorCode,
    MillraceError,
    SetupError,
    ZooKeeperError,
)
from millrace.fs import OsFileSystem
from millrace.ports import free_port
from millrace.security.acls import AclFilter
from millrace.security.client_config import read_client_security
from millrace.security.client_security import ClientSecurity
from millrace.zk import codec
from millrace_ops.supervisor.platform import Platform, PlatformOptions
from millrace_support.command_lines import command_lines
from millrace_support.log_guard import GUARD
from millrace_support.tls_relay import TlsRelay
from millrace_support.waiting import awaited, until

pytestmark = pytest.mark.usefixtures("warm_processes")


@contextmanager
def started(directory, **options):
    given = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "dagster_port": None, "secure": True, **options}
    options = PlatformOptions(directory=str(directory), **given)
    with GUARD.folder(directory / "logs"), Platform(options, OsFileSystem(), SystemClock()) as platform:
        platform.start()
        yield platform


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with started(tmp_path_factory.mktemp("platform"), console=True) as platform:
        yield platform


def as_user(platform, name):
    return Cluster(platform.addresses.broker, security=read_client_security(platform.client_config(name)))


def brokers_known_to(platform, broker):
    """Returns the ids of the brokers that a broker knows; none where it has just started."""
    security = read_client_security(platform.client_config("admin"))
    with suppress(MillraceError), Cluster(broker.broker, security=security) as cluster:
        return set(cluster.metadata([]).brokers)
    return set()


def secrets_of(platform):
    """All passwords and the token."""
    found = set()
    for path in Path(platform.path("secrets")).iterdir():
        if path.suffix != ".pem":
            found |= set(re.findall(r'password\\?="([^"]{20,})"', path.read_text()))
    return found | {Path(platform.path("secrets"), "admin.token").read_text().strip()}


def test_users_may_do_what_they_need_and_nothing_else(platform):
    with as_user(platform, "admin") as admin:
        Admin(admin).create_topic("orders", 2)
    with as_user(platform, "platform") as worker:
        Admin(worker).create_topic("made", 1)
        assert {"orders", "made"} <= set(worker.metadata(None).topics)
        with pytest.raises(BrokerError) as refused:
            Admin(worker).delete_topic("orders")
        assert refused.value.broker_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_the_console_is_the_administrators(platform):
    with as_user(platform, "admin") as admin:
        Admin(admin).create_topic("looked-at", 1)
    [broker] = platform.addresses.brokers
    secrets = Path(platform.path("secrets"))
    context = ssl.create_default_context(cafile=secrets / "ca.pem")
    token = (secrets / "admin.token").read_text().strip()
    request = Request(f"{broker.admin}/console/topic?name=looked-at", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, context=context, timeout=60) as response:
        assert "retention.ms" in response.read().decode()
    request = Request(f"{broker.admin}/console/acls", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, context=context, timeout=60) as response:
        assert "User:platform" in response.read().decode()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT"])
def test_who_has_no_account_or_no_tls_gets_nowhere(platform, protocol):
    properties = {"security.protocol": protocol}
    if protocol == "SSL":
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": f"{platform.path('secrets')}/ca.pem"}
    if protocol == "SASL_PLAINTEXT":
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "guessed"}
        properties |= login
    security = ClientSecurity.from_properties(properties)
    with (
        Cluster(platform.addresses.broker, timeout_s=3, security=security) as stranger,
        pytest.raises(BrokerUnreachableError),
    ):
        stranger.metadata(None)


def test_the_broker_has_one_listener_and_shows_its_certificate(platform):
    session = open_session(platform.addresses.zookeeper)
    endpoints = codec.decode_broker(session.get("/brokers/ids/1")).endpoints
    assert [one.security_protocol for one in endpoints] == ["SASL_SSL"]
    session.close()
    ports = [int(one.rpartition(":")[2]) for one in (platform.addresses.broker, platform.addresses.admin)]
    for port in ports:
        context = ssl.create_default_context(cafile=f"{platform.path('secrets')}/ca.pem")
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            assert secured.version() == "TLSv1.3"


def test_the_admin_endpoint_asks_for_its_token_by_tls(platform):
    url = f"{platform.addresses.admin}/metrics"
    assert url.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=f"{platform.path('secrets')}/ca.pem")
    with pytest.raises(HTTPError, match="401"):
        urlopen(url, context=context, timeout=60)
    token = Path(platform.path("secrets"), "admin.token").read_text()
    with urlopen(Request(url, headers={"Authorization": f"Bearer {token}"}), context=context, timeout=60) as response:
        assert b"millrace_" in response.read()
    with pytest.raises(URLError, match="certificate verify failed"):
        urlopen(url, timeout=60)
    awaited(lambda: platform.health() == {"ZooKeeper": "", "broker": ""} or None, "both parts are well")


def test_zookeepers_nodes_belong_to_the_brokers(platform):
    session = open_session(platform.addresses.zookeeper)
    try:
        with pytest.raises(ZooKeeperError):
            session.get("/config/users/admin")
        with pytest.raises(ZooKeeperError):
            session.ensure("/config/topics/mine")
    finally:
        session.close()


def test_secrets_are_in_files_of_their_owner_alone(platform):
    secrets = secrets_of(platform)
    assert len(secrets) == 5, "admin, broker, platform, ZooKeeper, and the token"
    shown = " ".join(command_lines())
    logs = "".join(path.read_text(errors="replace") for path in Path(platform.path("logs")).iterdir())
    assert [one for one in secrets if one in shown or one in logs] == []
    folder = Path(platform.path("secrets"))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_every_byte_of_clients_is_in_records_of_tls(tmp_path):
    """Clients are told the address of a relay, which looks at what passes."""
    port = free_port()
    with (
        TlsRelay(port) as relay,
        started(tmp_path, listen=f"127.0.0.1:{port}", advertised=f"127.0.0.1:{relay.port}") as platform,
    ):
        with as_user(platform, "admin") as admin:
            Admin(admin).create_topic("wire", 1)
        security = read_client_security(platform.client_config("admin"))
        with Producer(broker_list=platform.addresses.broker, security=security) as producer:
            producer.send("wire", b"x" * 50_000)
        with as_user(platform, "admin") as admin, SimpleConsumer(admin) as consumer:
            assert [one.value for one in consumer.messages("wire", 0)] == [b"x" * 50_000]
    assert relay.application_bytes > 100_000, "what was written and what was read"
    assert relay.faults == []


def test_a_second_start_keeps_users_rights_and_topics_and_a_plain_one_is_refused(tmp_path):
    with started(tmp_path) as first:
        with as_user(first, "admin") as admin:
            Admin(admin).create_topic("kept", 1)
            before = find_acls(admin, AclFilter())
        passwords = secrets_of(first)
    with pytest.raises(SetupError, match="was started with --secure; give it again"), started(tmp_path, secure=False):
        pass
    with started(tmp_path) as second:
        assert secrets_of(second) == passwords
        with as_user(second, "admin") as admin:
            assert set(Admin(admin).topics()) == {"kept"}
            assert find_acls(admin, AclFilter()) == before
    with (
        pytest.raises(SetupError, match=r"super\.users=User:me: --secure sets this property"),
        started(tmp_path, broker_properties={"super.users": "User:me"}),
    ):
        pass


def test_a_plain_platform_becomes_a_hardened_one_with_its_topics(tmp_path):
    with started(tmp_path, secure=False) as plain, Cluster(plain.addresses.broker) as cluster:
        Admin(cluster).create_topic("old", 1)
    with started(tmp_path) as hardened:
        with as_user(hardened, "admin") as admin:
            assert set(Admin(admin).topics()) == {"old"}
        session = open_session(hardened.addresses.zookeeper)
        with pytest.raises(ZooKeeperError):
            session.ensure("/brokers/topics/old/mine")
        session.close()


def test_three_brokers_reach_each_other_by_tls_and_sasl_alone(tmp_path):
    with started(tmp_path, brokers=3) as platform, as_user(platform, "admin") as admin:
        for one in platform.addresses.brokers:
            awaited(lambda one=one: len(brokers_known_to(platform, one)) == 3 or None, f"{one.place.part} knows of all")
        Admin(admin).create_topic("t", 1, 3)
        until(lambda: len(admin.metadata(["t"]).topic("t").partitions[0].isr) == 3)
        denied = "".join(path.read_text() for path in Path(platform.path("logs")).glob("broker*.log"))
        assert "is Denied" not in denied
