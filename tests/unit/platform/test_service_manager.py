"""What systemd is told, by a socket that stands for its own."""

import socket

import pytest

from millrace.service_manager import ServiceManager


@pytest.fixture(params=["a file", "no file"])
def manager(request, tmp_path):
    """(the socket, its name in the environment)."""
    name = str(tmp_path / "notify") if request.param == "a file" else f"@{tmp_path.name}-{id(request)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        receiver.setblocking(False)
        yield receiver, name


def test_it_is_told_in_the_words_of_sd_notify(manager):
    receiver, name = manager
    service = ServiceManager(name)
    service.ready("listening at h:1")
    service.alive()
    service.stopping()
    assert [receiver.recv(999) for _ in range(3)] == [
        b"READY=1\nSTATUS=listening at h:1",
        b"WATCHDOG=1",
        b"STOPPING=1\nSTATUS=stopping",
    ]


@pytest.mark.parametrize(
    ("environment", "watchdog_ms"),
    [
        ({}, None),
        ({"NOTIFY_SOCKET": "/s"}, None),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30000000"}, 15_000),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 15_000),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "1"}, 1),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "30000000"}, None),
    ],
)
def test_the_watchdog_is_fed_twice_in_its_time_by_the_process_that_is_meant(environment, watchdog_ms):
    environment["OTHER"] = "stays"
    assert ServiceManager.taken_from(environment, 7).watchdog_ms == watchdog_ms
    assert environment == {"OTHER": "stays"}


def test_nobody_is_told_without_a_manager():
    ServiceManager(None).ready("listening")


def test_a_manager_that_is_gone_is_a_warning(tmp_path, caplog):
    ServiceManager(str(tmp_path / "gone")).alive()
    (record,) = caplog.records
    assert (record.levelname, "WATCHDOG=1 can't be told" in record.getMessage()) == ("WARNING", True)
