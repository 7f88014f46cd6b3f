"""Jobs as they are declared, and found by other processes."""

import pyarrow as pa
import pytest

from millrace_ops.demo.carrier_delays import carrier_delays
from millrace_pipelines.downstream import Form, micro_batch_job
from millrace_pipelines.downstream.job import JobError, find_job


def test_a_job_is_found_by_its_reference():
    assert carrier_delays.reference == "millrace_ops.demo.carrier_delays:carrier_delays"
    assert find_job(carrier_delays.reference) is carrier_delays


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("no.such.module:job", "No module named 'no'"),
        ("millrace_ops.demo.carrier_delays:nothing", "no attribute 'nothing'"),
        ("millrace_ops.demo.carrier_delays:added_up", "not a job, but function; is @micro_batch_job missing"),
        ("", "there is no such job"),
    ],
)
def test_what_is_no_job_is_named(reference, words):
    with pytest.raises(JobError, match=words):
        find_job(reference)


def test_a_state_adds_the_partition_by_itself():
    schema = pa.schema([("partition", pa.int32())])
    with pytest.raises(JobError, match="adds the column 'partition' by itself"):
        micro_batch_job(topic="t", schema=schema)
    assert micro_batch_job(topic="t", schema=schema, form=Form.APPEND, name="j")(print).name == "j"
