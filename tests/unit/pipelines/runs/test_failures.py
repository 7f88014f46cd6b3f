"""Why a job failed, in words."""

import pytest

from millrace.errors import BrokerUnreachableError
from millrace_pipelines.runs.jobs import Failed, ending, failure_of, jvm_ended, unreported
from millrace_pipelines.spark.errors import Accept, LogTruncatedError, OffsetsLostError
from millrace_pipelines.warehouse.errors import LoadFailedError, SchemaError, StaleLedgerError
from millrace_pipelines.warehouse.load.options import AcceptOptions


def test_every_option_that_accepts_something_is_a_field_of_the_options():
    assert {str(option) for option in Accept} == set(AcceptOptions.__dataclass_fields__)


def test_the_option_is_spelt_as_a_configuration_spells_it():
    error = OffsetsLostError(f"offsets are gone; {Accept.LOST_OFFSETS.flag} goes on", Accept.LOST_OFFSETS)
    assert "--accept-lost-offsets goes on" in str(error)
    assert failure_of(error) == Failed(
        sentence="offsets are gone; `accept_lost_offsets: true` goes on",
        error="OffsetsLostError",
        may_pass=False,
        option=Accept.LOST_OFFSETS,
    )


def test_an_error_that_nothing_accepts_names_no_option():
    assert failure_of(LogTruncatedError("the log was cut while it was loaded")).option is None


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (StaleLedgerError("another load committed first"), True),
        (LoadFailedError("tasks failed"), True),
        (BrokerUnreachableError("no broker"), True),
        (SchemaError("not the table's"), False),
        (KeyError("a defect"), False),
    ],
)
def test_what_continuous_loads_retry_may_pass(error, may_pass):
    assert failure_of(error).may_pass is may_pass


def test_an_error_of_another_library_is_named():
    assert failure_of(ValueError("no such codec")).sentence == "ValueError: no such codec"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with exit status 0"),
        (3, "ended with exit status 3"),
        (-9, "was killed (SIGKILL), perhaps because the machine's memory ran out,"),
        (-15, "was ended by SIGTERM"),
        (-99, "was ended by signal 99"),
    ],
)
def test_how_a_process_ended(status, words):
    assert ending(status) == words


def test_a_process_without_a_report_is_a_failure_that_says_so():
    killed, ended = unreported(-9, has_begun=True), unreported(1, has_begun=False)
    assert killed.sentence.startswith("the process of the load was killed (SIGKILL), perhaps")
    assert "ended with exit status 1 before it began" in ended.sentence
    assert (killed.may_pass, ended.may_pass, jvm_ended(-9).may_pass) == (True, False, True)
