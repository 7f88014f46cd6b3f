"""The output of a job: rows and offsets in one commit, each record once, whoever commits."""

import threading

import pyarrow as pa
import pytest

from millrace.client.consumer import Message
from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.downstream.job import Form, JobError, micro_batch_job
from millrace_pipelines.downstream.output import Output, ProcessedRange, output_rows
from millrace_pipelines.spark.brokers import LogOffsets
from millrace_pipelines.spark.errors import TopicRecreatedError
from millrace_pipelines.warehouse.errors import StaleLedgerError, TableNotFoundError
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_pipelines.warehouse.maintenance import MaintenancePolicy, maintain

FS = OsFileSystem()
LOG = {0: LogOffsets(5, 100), 1: LogOffsets(0, 100)}
SCHEMA = pa.schema([("word", pa.string()), ("count", pa.int64())])


def counted(rows, messages):
    new = pa.table({"word": [one.value.decode() for one in messages], "count": [1] * len(messages)}, SCHEMA)
    sums = pa.concat_tables([rows, new]).group_by("word").aggregate([("count", "sum")])
    return pa.table({"word": sums["word"], "count": sums["count_sum"]}, SCHEMA)


def listed(_, messages):
    return pa.table(
        {"word": [one.value.decode() for one in messages], "count": [one.offset for one in messages]}, SCHEMA
    )


STATE = micro_batch_job(topic="words", schema=SCHEMA)(counted)
APPENDED = micro_batch_job(topic="words", schema=SCHEMA, form=Form.APPEND)(listed)


def messages(partition, begin, end, word=b"a"):
    return [Message("words", partition, offset, None, word, 0, ()) for offset in range(begin, end)]


@pytest.fixture(params=["", "iceberg:"])
def output(tmp_path, request):
    """Opens an output, of each format."""
    location = f"{request.param}{tmp_path}/{'counts.' if request.param else ''}output"

    def opened(job=STATE, topic_id="id", log=LOG):
        found = Output(location, job, topic_id, FS, SystemClock())
        found.prepare(log)
        return found

    return opened


def rows(output):
    return sorted(tuple(row.values()) for row in output_rows(output.location).to_pylist())


def test_an_output_begins_where_the_logs_do_and_a_later_partition_at_0(output):
    assert output().next_offsets(LOG) == {0: 5, 1: 0}
    more = {**LOG, 2: LogOffsets(7, 9)}
    assert output(log=more).next_offsets(more) == {0: 5, 1: 0, 2: 0}


def test_a_partition_that_is_claimed_before_the_output_knows_it_begins_at_0(output):
    one = output()
    one.commit({0: messages(0, 5, 8)})
    assert one.positions([0, 3]) == one.next_offsets([0, 3]) == {0: 8, 3: 0}
    version = load_table(one.location, FS).version
    assert one.positions([0, 3]) == {0: 8, 3: 0}
    assert load_table(one.location, FS).version == version


def test_a_state_is_replaced_and_has_one_file_for_each_partition(output):
    one = output()
    assert [*one.commit({0: messages(0, 5, 8), 1: messages(1, 0, 2, b"b")}).ranges] == [
        ProcessedRange(0, 5, 8, 3),
        ProcessedRange(1, 0, 2, 2),
    ]
    one.commit({0: messages(0, 8, 10)})
    assert rows(one) == [(0, "a", 5), (1, "b", 2)]
    assert one.next_offsets(LOG) == {0: 10, 1: 2}
    assert len(load_table(one.location, FS).files()) == 2


def test_rows_are_appended(output):
    one = output(APPENDED)
    one.commit({0: messages(0, 5, 7)})
    one.commit({0: messages(0, 7, 8), 1: messages(1, 0, 1)})
    assert rows(one) == [("a", 0), ("a", 5), ("a", 6), ("a", 7)]


def test_what_another_has_committed_is_left_out(output):
    former, owner = output(), output()
    owner.commit({0: messages(0, 5, 20)})
    assert former.commit({0: messages(0, 5, 15)}) == (None, ())
    assert former.commit({0: messages(0, 5, 30)}).ranges == (ProcessedRange(0, 20, 30, 10),)
    assert rows(owner) == [(0, "a", 25)]


def test_a_worker_that_is_overtaken_while_it_works_makes_the_rest_again_on_the_rows_of_the_other(tmp_path):
    calls = []

    def overtaken(before, new):
        calls.append((before.num_rows, len(new)))
        if len(calls) == 1:
            other.commit({0: messages(0, 5, 15)})
        return counted(before, new)

    other = Output(str(tmp_path), STATE, "id", FS, SystemClock())
    other.prepare(LOG)
    slow = Output(str(tmp_path), micro_batch_job(topic="words", schema=SCHEMA)(overtaken), "id", FS, SystemClock())
    assert slow.commit({0: messages(0, 5, 20)}).ranges == (ProcessedRange(0, 15, 20, 5),)
    assert calls == [(0, 15), (1, 5)]
    assert rows(other) == [(0, "a", 15)]


def test_the_function_is_called_once_where_only_other_partitions_moved(tmp_path):
    calls = []

    def slow(before, new):
        calls.append(len(new))
        other.commit({1: messages(1, 0, 4)})
        return counted(before, new)

    other = Output(str(tmp_path), STATE, "id", FS, SystemClock())
    other.prepare(LOG)
    Output(str(tmp_path), micro_batch_job(topic="words", schema=SCHEMA)(slow), "id", FS, SystemClock()).commit(
        {0: messages(0, 5, 9)}
    )
    assert calls == [4]
    assert rows(other) == [(0, "a", 4), (1, "a", 4)]


def test_commits_that_meet_lose_and_double_nothing(output):
    """Two workers for each partition, each of which believes to own it."""
    outputs = [output() for _ in range(4)]

    def work(one, partition):
        for end in range(10, 60, 10):
            one.commit({partition: messages(partition, LOG[partition].start_offset, end)})

    threads = [threading.Thread(target=work, args=(one, number % 2)) for number, one in enumerate(outputs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs[0].next_offsets(LOG) == {0: 50, 1: 50}
    assert rows(outputs[0]) == [(0, "a", 45), (1, "a", 50)]


def test_offsets_without_a_record_are_passed_over_once(output):
    one = output()
    one.pass_over([ProcessedRange(0, 5, 6)])
    assert one.next_offsets(LOG)[0] == 6
    with pytest.raises(StaleLedgerError):
        one.pass_over([ProcessedRange(0, 5, 6)])


def test_a_commit_says_what_it_did(output):
    one = output()
    one.commit({0: messages(0, 5, 8)})
    one.pass_over([ProcessedRange(1, 0, 3, reason="retention")])
    *_, first, second = load_table(one.location, FS).lineage()
    assert (first["kind"], first["topic"]) == ("micro-batch", "words")
    assert first["ranges"] == [{"partition": 0, "from_offset": 5, "until_offset": 8, "records": 3, "reason": None}]
    assert [(part["from_offset"], part["until_offset"]) for part in second["lost"]] == [(0, 3)]


def test_a_function_that_fails_commits_nothing_and_the_offsets_are_named(tmp_path):
    def failing(_, new):
        raise ValueError(f"{len(new)} are too many")

    one = Output(str(tmp_path), micro_batch_job(topic="words", schema=SCHEMA)(failing), "id", FS, SystemClock())
    one.prepare(LOG)
    with pytest.raises(JobError, match=r"failing: words-0, offsets 5 to 8: .* ValueError: 4 are too many"):
        one.commit({0: messages(0, 5, 9)})
    assert one.next_offsets(LOG) == {0: 5, 1: 0}


def test_other_columns_than_the_schemas_are_refused(tmp_path):
    def other(_, new):
        return pa.table({"word": [len(new)]})

    one = Output(str(tmp_path), micro_batch_job(topic="words", schema=SCHEMA)(other), "id", FS, SystemClock())
    one.prepare(LOG)
    with pytest.raises(JobError, match="returned word: int64, not rows of word: string, count: int64"):
        one.commit({0: messages(0, 5, 9)})


def test_an_output_is_one_jobs_of_one_topic(output):
    output()
    with pytest.raises(TopicRecreatedError, match="its id is other"):
        output(topic_id="other")
    with pytest.raises(TopicRecreatedError, match="its id is another, the table's id"):
        output().check_topic("another")
    with pytest.raises(JobError, match=r"holds state: .* makes append: "):
        output(APPENDED)
    with pytest.raises(JobError, match="of another job, of the topic words"):
        output(micro_batch_job(topic="letters", schema=SCHEMA)(counted))


def test_loads_take_no_output_for_a_table_of_theirs_and_upkeep_keeps_it(output):
    one = output(APPENDED)
    for number in range(12):
        one.commit({1: messages(1, number, number + 1)})
    with pytest.raises(TableNotFoundError):
        read_ledger(one.location)
    [report] = maintain(one.location, FS, SystemClock(), MaintenancePolicy())
    assert report.compaction.files_before == 12
    one.commit({1: messages(1, 12, 13)})
    assert [count for _, count in rows(one)] == list(range(13))
