"""The token that a broker makes for its admin endpoint and keeps."""

import errno
import stat

import pytest

from millrace.errors import InvalidConfigError
from millrace.fs import OsFileSystem
from millrace_broker.admin.guard import kept_token, token_file


def test_it_is_made_once_and_only_its_owner_can_read_it(tmp_path):
    path = token_file("", str(tmp_path / "data"))
    token = kept_token(OsFileSystem(), path)
    assert len(token) >= 32
    assert stat.S_IMODE((tmp_path / "data" / "admin.token").stat().st_mode) == 0o600
    assert kept_token(OsFileSystem(), path) == token


def test_another_file_may_have_it(tmp_path):
    (tmp_path / "mine").write_text(" hush\n", encoding="utf-8")
    assert kept_token(OsFileSystem(), token_file(str(tmp_path / "mine"), "/nowhere")) == "hush"


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\n", b"two\nlines\n"])
def test_a_file_without_a_token_is_named(tmp_path, content):
    (tmp_path / "admin.token").write_bytes(content)
    with pytest.raises(InvalidConfigError, match=r"admin\.token"):
        kept_token(OsFileSystem(), str(tmp_path / "admin.token"))


class FullDisk(OsFileSystem):
    """A disk on which no file can be made."""

    def open(self, path, *, create=False):
        if create:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path, create=create)


def test_a_full_disk_prevents_no_start(tmp_path, caplog):
    assert kept_token(FullDisk(), str(tmp_path / "admin.token"))
    assert list(tmp_path.iterdir()) == []
    [said] = caplog.messages
    assert "so nobody can change anything by the admin endpoint" in said
