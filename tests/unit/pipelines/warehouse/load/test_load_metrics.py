"""Loads that failed, as a file for Prometheus keeps them from one load to the next."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.errors import SetupError
from millrace_pipelines.warehouse.load.metrics import LoadAttempts


def told(file):
    """Returns the value of each sample, by its name and error."""
    families = text_string_to_metric_families(file.read_text())
    samples = [sample for family in families for sample in family.samples]
    assert {(one.labels["table"], one.labels["topic"]) for one in samples} == {("/warehouse/t", "t")}
    return {(one.name.removeprefix("millrace_table_load_"), one.labels.get("error")): one.value for one in samples}


def note(file, error=None):
    LoadAttempts("/warehouse/t", "t").note(str(file), error)


def test_counts_go_on_and_the_newest_load_says_whether_it_failed(tmp_path):
    file = tmp_path / "t.prom"
    note(file)
    assert told(file) == {("attempts_total", None): 1}
    for error in ("StorageError", "ClientError", "StorageError"):
        note(file, error)
    assert told(file) == {
        ("attempts_total", None): 4,
        ("failures_total", "StorageError"): 2, ("failures_total", "ClientError"): 1,
        ("failing", "StorageError"): 1, ("failing", "ClientError"): 0,
    }  # fmt: skip
    note(file)
    assert told(file)["failing", "StorageError"] == 0
    assert told(file)["failures_total", "StorageError"] == 2
    assert told(file)["attempts_total", None] == 5


@pytest.mark.parametrize("content", [b"no metrics {", b"\xff"])
def test_a_file_that_can_not_be_read_is_named_and_kept(tmp_path, content):
    (file := tmp_path / "t.prom").write_bytes(content)
    with pytest.raises(SetupError, match=r"t\.prom"):
        note(file)
    assert file.read_bytes() == content


def test_a_file_that_can_not_be_written_is_named(tmp_path):
    with pytest.raises(SetupError, match=r"missing/t\.prom: No such file or directory"):
        note(tmp_path / "missing" / "t.prom")
