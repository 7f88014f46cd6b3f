"""The admin endpoint by TLS: who trusts its authority reaches it, and what is missing is said."""

import asyncio
import json
import ssl
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from millrace.clock import SystemClock
from millrace.errors import InvalidConfigError, PlatformError
from millrace.security.tls import server_context
from millrace.testing.broker import BrokerProcess
from millrace_broker.admin import endpoint
from millrace_broker.admin.guard import Guard
from millrace_broker.admin.health import Health
from millrace_broker.startup.options import parse_options
from millrace_ops.cli.brokers import _endpoints
from millrace_ops.replicas.adoption import AdminUnreachableError
from millrace_ops.supervisor import health
from millrace_ops.supervisor.health import broker_problem
from millrace_pipelines.defs.resources import MillraceResource
from millrace_support.certificates import Authority

TOKEN = "hush"
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Lets a broker on a busy machine take its time for an answer."""
    monkeypatch.setattr(health, "TIMEOUT_S", PATIENCE_S)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Authority().issue().write(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def client_config(files):
    """A file of client properties that trusts the authority."""
    path = files.trust_store_pem.with_name("client.properties")
    path.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={files.trust_store_pem}\n"
    )
    return str(path)


@pytest.fixture(scope="module")
def broker(files, tmp_path_factory):
    properties = {
        "admin.security.protocol": "SSL",
        "admin.token": TOKEN,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.key_store_pem),
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), properties=properties) as started:
        yield started


def resource_of(broker, client_config=""):
    return MillraceResource(
        bootstrap=broker.bootstrap,
        client_config=client_config,
        admin_url=broker.admin_url,
        admin_token=TOKEN,
        warehouse_dir="/nowhere",
        schema_dir="",
        master="local[1]",
    )


def test_who_trusts_its_authority_reaches_it(broker, files, client_config):
    assert broker.admin_url.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=files.trust_store_pem)
    request = Request(f"{broker.admin_url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(request, context=context, timeout=60) as response:
        assert json.load(response)["status"] == "ok"
    assert broker_problem(broker.admin_url, TOKEN, context) == ""
    assert resource_of(broker, client_config).admin().verify([], dry_run=True)["partitions"] == []


def test_millrace_brokers_adopt_reaches_it(broker, client_config, monkeypatch):
    monkeypatch.setenv("MILLRACE_ADMIN_TOKEN", TOKEN)
    [reached] = _endpoints(f"{broker.admin_url}/, {broker.admin_url}", client_config)
    assert reached.report("t").strays == ()
    [stranger] = _endpoints(broker.admin_url, None)
    with pytest.raises(AdminUnreachableError, match="certificate verify failed"):
        stranger.report("t")


def test_who_does_not_trust_its_authority_sends_no_token(broker):
    with pytest.raises(URLError, match="certificate verify failed"):
        urlopen(broker.admin_url, timeout=60)
    assert "CERTIFICATE_VERIFY_FAILED" in broker_problem(broker.admin_url, TOKEN)
    with pytest.raises(PlatformError, match="CERTIFICATE_VERIFY_FAILED"):
        resource_of(broker).admin().verify([], dry_run=True)


def test_plain_text_is_not_answered(broker):
    with pytest.raises((URLError, ConnectionError, OSError)):
        urlopen(broker.admin_url.replace("https:", "http:"), timeout=60)


def test_without_a_key_store_the_broker_does_not_start():
    with pytest.raises(InvalidConfigError, match=r"^admin\.security\.protocol=SSL: ssl\.keystore\.location: Invalid"):
        parse_options(["--standalone", "--data", ".", "--set", "admin.security.protocol=SSL"])


def test_beyond_loopback_a_warning_names_the_property_unless_it_speaks_tls(files, monkeypatch, caplog):
    """Loopback stands for another address here."""
    monkeypatch.setattr(endpoint, "is_loopback", lambda _: False)
    stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.key_store_pem)}

    async def listens(context):
        opened = endpoint.AdminEndpoint(SystemClock(), lambda: Health((), (), ()), dict)
        await opened.start("127.0.0.1", 0, Guard(TOKEN), context)
        await opened.stop()

    asyncio.run(listens(server_context(stores)))
    assert "admin.security.protocol" not in caplog.text
    asyncio.run(listens(None))
    assert "127.0.0.1:0: everybody on the way reads the token of the admin endpoint; admin.security.protocol=SSL" in (
        caplog.text
    )
