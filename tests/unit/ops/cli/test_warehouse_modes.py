"""Keys and times as they are typed for `erase` and `reload`."""

import pytest
import typer

from millrace_ops.cli.app import app
from millrace_ops.cli.warehouse_modes import KeyFormat, key_bytes, time_ms
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_support.command_runner import CommandRunner


def test_keys_and_times_as_users_write_them():
    assert key_bytes("ä", KeyFormat.TEXT) == "ä".encode()
    assert key_bytes("\udcff", KeyFormat.TEXT) == b"\xff"  # as Python has an argument's byte that is no UTF-8
    assert key_bytes("00ff", KeyFormat.HEX) == key_bytes("AP8=", KeyFormat.BASE64) == b"\x00\xff"
    for text, key_format in (("0", KeyFormat.HEX), ("?", KeyFormat.BASE64)):
        with pytest.raises(typer.BadParameter, match="is not"):
            key_bytes(text, key_format)
    assert time_ms("2013-01-01T05:00:00") == time_ms("2013-01-01T06:00:00+01:00") == 1_357_016_400_000
    with pytest.raises(typer.BadParameter, match="ISO 8601"):
        time_ms("yesterday")


def test_keys_of_a_file_are_the_bytes_of_its_lines(tmp_path, monkeypatch):
    erased = []

    def erase(_directory, keys, _fs, **_how):
        erased.extend(keys)
        raise TableNotFoundError("enough")

    monkeypatch.setattr("millrace_pipelines.warehouse.keys.erase.erase", erase)
    file = tmp_path / "keys"
    file.write_bytes(b"alice\r\n\xff\xfe\n\na\rb\x85c")
    CommandRunner().invoke(app, ["warehouse", "erase", str(tmp_path), "--keys-file", str(file)])
    assert erased == [b"alice", b"\xff\xfe", b"a\rb\x85c"]
