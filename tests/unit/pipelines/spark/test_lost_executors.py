"""What is told of an executor that is gone."""

import pytest

from millrace_pipelines.spark.lost_executors import LostExecutors, Removed

REASONS = {
    "worker lost: 10.0.0.7:44111 got disassociated": "worker lost: 10.0.0.7:44111 got disassociated",
    "Command exited with code 137": "Command exited with code 137",
    "Remote RPC client disassociated. Likely due to containers exceeding thresholds, or network issues. Check driver "
    "logs for WARN messages.": "Remote RPC client disassociated",
    "": "no reason was given",
}


@pytest.mark.parametrize(("reason", "told"), REASONS.items())
def test_a_lost_executor_is_one_sentence(reason, told):
    lost = Removed("3", "10.0.0.7:38121", reason)
    assert lost.is_lost
    assert str(lost) == f"Spark has lost executor 3 on 10.0.0.7 ({told}); what it was doing is done again on others"


@pytest.mark.parametrize("reason", ["Executor 3 on 10.0.0.7 killed by driver.", "Executor killed by driver."])
def test_an_executor_that_is_given_back_is_not_lost(reason):
    assert not Removed("3", "10.0.0.7:38121", reason).is_lost


def test_nothing_is_told_where_spark_does_not_run():
    assert LostExecutors().news() == []
