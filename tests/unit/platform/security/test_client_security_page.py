"""The files that the page on client security shows are files that clients take."""

import re
from pathlib import Path

import pytest

from millrace.security.client_config import read_client_security
from millrace_support.certificates import Authority

PAGE = Path(__file__).parents[4] / "docs" / "client-security.md"
FILES = re.findall(r"```properties\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", FILES)
def test_a_shown_file_is_taken(text, tmp_path):
    files = Authority().issue("CN=alice", names=()).write(tmp_path, "client")
    placed = text.replace("/etc/kafka/ca.pem", str(files.trust_store_pem))
    path = tmp_path / "client.properties"
    path.write_text(placed.replace("/etc/kafka/client.pem", str(files.key_store_pem)), encoding="utf-8")
    security = read_client_security(str(path), environment={})
    assert security.protocol.uses_tls
    assert security.context is not None
