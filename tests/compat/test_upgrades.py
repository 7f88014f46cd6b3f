"""Data of the version before opens in this one and goes on, and that of this version opens in the one before.

What the version before has written is recorded (millrace_support.recorded_data); that its table is loaded on is in
test_warehouse_load.py. Its code, for the way back, is built from the repository's history.
"""

import pytest

from millrace.errors import SetupError
from millrace.testing.broker import BrokerProcess
from millrace_support import recorded_data
from millrace_support.former_release import former_broker
from millrace_support.recorded_data import PROPERTIES, RECORDED


@pytest.fixture(scope="module")
def before():
    """What Python runs as the broker of the version before."""
    try:
        return former_broker()
    except SetupError as error:
        pytest.skip(str(error))


def test_a_broker_opens_and_continues_what_the_version_before_has_written(tmp_path):
    recorded_data.unpack(RECORDED, tmp_path)
    with BrokerProcess(tmp_path / "data", properties=PROPERTIES) as broker:
        recorded_data.check(broker.bootstrap)


def test_the_version_before_opens_and_continues_what_this_one_has_written(before, tmp_path):
    with BrokerProcess(tmp_path / "data", properties=PROPERTIES) as broker:
        recorded_data.write(broker.bootstrap)
        broker.stop()
    with BrokerProcess(tmp_path / "data", properties=PROPERTIES, program=before) as former:
        recorded_data.check(former.bootstrap)
