"""The secrets of a hardened platform: made once, kept, and for their owner's eyes alone."""

from pathlib import Path

import pytest

from millrace.clock import SystemClock
from millrace.errors import SetupError
from millrace.fs import OsFileSystem
from millrace.security.authority import Authority
from millrace.security.client_config import read_client_security
from millrace.zk.security import read_login
from millrace_ops.demo.demo import librdkafka_security
from millrace_ops.supervisor.hardening import SecretsFolder, is_hardened

FS = OsFileSystem()


@pytest.fixture
def folder(tmp_path):
    return SecretsFolder(str(tmp_path / "secrets"), FS, SystemClock())


def test_what_there_is_stays_and_what_is_missing_is_made(folder):
    folder.key_store(["localhost"])
    kept = (folder.admin_token(), folder.password("alice"), Path(folder.zookeeper_jaas()).read_text())
    Path(folder.client_config("bob")).unlink()
    again = SecretsFolder(folder.path, FS, SystemClock())
    assert (again.admin_token(), again.password("alice"), Path(again.zookeeper_jaas()).read_text()) == kept
    assert again.password("bob") not in {*kept, again.password("carol")}


def test_each_start_has_a_new_certificate_of_the_same_authority(folder):
    first = Path(folder.key_store(["localhost"])).read_text()
    trusted = Path(folder.trusted).read_text()
    second = Path(folder.key_store(["localhost", "kafka.example.com"])).read_text()
    assert first != second
    assert Path(folder.trusted).read_text() == trusted
    assert Authority.from_pem(Path(folder.path, "ca.key.pem").read_text()).trusted == trusted


def test_nobody_else_may_read_them(folder, tmp_path):
    folder.key_store(["localhost"])
    folder.client_config("alice")
    folder.zookeeper_jaas()
    folder.admin_token()
    assert {path.stat().st_mode & 0o777 for path in Path(folder.path).iterdir()} == {0o600}
    open_before = tmp_path / "open"
    open_before.mkdir(mode=0o755)
    SecretsFolder(str(open_before), FS, SystemClock())
    assert open_before.stat().st_mode & 0o777 == 0o700


def test_the_files_are_those_that_clients_and_zookeeper_read(folder):
    folder.key_store(["localhost"])
    security = read_client_security(folder.client_config("alice"), environment={})
    assert (security.protocol.name, security.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert read_login(folder.zookeeper_jaas()).username == "kafka"
    assert librdkafka_security(folder.client_config("alice")) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": folder.password("alice"),
        "ssl.ca.location": folder.trusted,
    }


def test_a_login_of_somebody_else_is_refused_without_its_password(folder):
    path = Path(folder.client_config("alice"))
    path.write_text(path.read_text().replace("alice", "bob"))
    with pytest.raises(
        SetupError, match=r"alice\.properties: sasl\.jaas\.config has no username=alice with a password$"
    ):
        folder.password("alice")


def test_a_folder_with_a_token_alone_is_not_that_of_a_hardened_platform(folder):
    folder.admin_token()
    assert not is_hardened(folder.path, FS)
    folder.key_store(["localhost"])
    assert is_hardened(folder.path, FS)
