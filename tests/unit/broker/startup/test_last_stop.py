"""What a broker says that it may have lost, for each state in which it finds a data directory."""

from uuid import UUID

import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_broker.cluster.store import Losses
from millrace_broker.startup import last_stop
from millrace_broker.startup.last_stop import losses_since_last_stop, machines_boot_id
from millrace_broker.storage import LogManager, TopicPartition
from millrace_broker.storage.data_dirs.data_dir import read_boot_id

FS = OsFileSystem()
NOW, BEFORE = "now", "before"
KEPT = frozenset({TopicPartition("t", 0), TopicPartition("t.with-dashes", 12)})


@pytest.fixture
def make(tmp_path):
    """Returns a function that makes a data directory as a broker leaves it behind."""

    def made(name, *, is_clean, boot_id=BEFORE):
        path = tmp_path / name
        logs = LogManager(FS, SystemClock(), [str(path)], {}, "c" * 22, 1, boot_id=boot_id)
        logs.start()
        logs.close()
        marker = path / ".kafka_cleanshutdown"
        if not is_clean:
            marker.unlink()
        for key in KEPT:
            (path / str(key)).mkdir()
        return str(path)

    return made


@pytest.mark.parametrize("boot_id", [BEFORE, NOW, None])
@pytest.mark.parametrize("boot_id_then", [BEFORE, None])
@pytest.mark.parametrize("is_clean", [True, False])
def test_power_is_lost_unless_the_stop_was_clean_or_the_machine_runs_since_then(make, is_clean, boot_id_then, boot_id):
    folder = make("one", is_clean=is_clean, boot_id=boot_id_then)
    survives = is_clean or (boot_id == boot_id_then == BEFORE)
    assert losses_since_last_stop(FS, [folder], boot_id) == Losses(has_lost_power=not survives)


def test_one_of_two_directories_is_enough_for_a_loss(make):
    clean, unclean = make("clean", is_clean=True), make("unclean", is_clean=False)
    assert losses_since_last_stop(FS, [clean, unclean], NOW).has_lost_power


@pytest.mark.parametrize("is_there", [True, False])
def test_a_new_directory_has_none_of_what_is_in_no_other(make, tmp_path, is_there):
    new = tmp_path / "new"
    if is_there:
        new.mkdir()
    assert losses_since_last_stop(FS, [str(new)], NOW) == Losses(has_new_disk=True)
    folder = make("one", is_clean=True)
    assert losses_since_last_stop(FS, [folder, str(new)], NOW) == Losses(has_new_disk=True, kept=KEPT)


def test_a_directory_that_cant_be_read_tells_nothing(tmp_path):
    path = tmp_path / "bad"
    path.mkdir()
    (path / "meta.properties").mkdir()
    assert losses_since_last_stop(FS, [str(path)], NOW) == Losses()


def test_a_start_writes_the_machines_start_before_it_takes_the_marker_away(make, tmp_path):
    folder = make("one", is_clean=True, boot_id=BEFORE)
    assert read_boot_id(FS, folder) == BEFORE

    class Stopping(OsFileSystem):
        def unlink(self, path):
            assert read_boot_id(FS, folder) == NOW
            super().unlink(path)

    logs = LogManager(Stopping(), SystemClock(), [folder], {}, "c" * 22, 1, boot_id=NOW)
    for key in KEPT:
        (tmp_path / "one" / str(key)).rmdir()
    logs.start()
    logs.close()
    assert read_boot_id(FS, folder) == NOW


def test_the_machine_tells_its_start():
    assert UUID(machines_boot_id()) == UUID(machines_boot_id())


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
def test_a_machine_may_tell_nothing(content, tmp_path, monkeypatch):
    path = tmp_path / "boot_id"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(last_stop, "BOOT_ID_OF_MACHINE", path)
    assert machines_boot_id() is None
