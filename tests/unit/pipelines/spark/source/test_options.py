"""Options of the data source: what they mean, and what is refused by name."""

import pytest

from millrace.security.client_config import SecuritySource
from millrace_pipelines.spark.brokers import LogOffsets
from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.spark.errors import LogTruncatedError, OffsetsLostError, SourceOptionError
from millrace_pipelines.spark.source.options import (
    LATEST,
    Position,
    check_named_partitions,
    parse_offsets,
    parse_options,
    parse_time,
    resolve,
    within_log,
)

NEEDED = {"bootstrap": "h:1", "topic": "events"}
LOG = LogOffsets(10, 90)


def test_defaults():
    options = parse_options(NEEDED)
    assert (options.topics, options.topic_pattern, options.partitions) == (("events",), None, None)
    assert (options.starting, options.ending) == (None, Position(LATEST))
    assert (options.isolation, options.fail_on_data_loss) == (Isolation.READ_COMMITTED, True)


def test_names_and_choices_are_taken_in_any_case():
    options = parse_options(
        {"BOOTSTRAP": "h:1", "Topics": "a, b,a", "ISOLATION": "READ_UNCOMMITTED", "failondataloss": "False"}
    )
    assert (options.topics, options.isolation) == (("a", "b"), Isolation.READ_UNCOMMITTED)
    assert not options.fail_on_data_loss


def test_partitions_are_numbers_and_ranges():
    options = parse_options(NEEDED | {"partitions": "0, 3-5"})
    assert [number for number in range(8) if options.wants(number)] == [0, 3, 4, 5]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOfsets": "earliest"}, "startingOfsets: unknown option; there are bootstrap, topic"),
        ({"bootstrap": " "}, "bootstrap: this option is needed"),
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.jaas.config: Spark would show it; write it into the file that c"),
        ({"millrace.ssl.key.password": "x"}, "millrace.ssl.key.password: Spark would show it"),
        ({"kafka.fetch.min.bytes": "1"}, "kafka.fetch.min.bytes: only properties of security are taken"),
        ({"topics": "a"}, "one of topic, topics, topicPattern is needed, and only one"),
        ({"startingOffsets": "first"}, "startingOffsets: 'first' is neither earliest, latest nor JSON"),
        ({"startingOffsets": '{"events": {"0": -3}}'}, "-3 is not an offset"),
        ({"startingOffsets": '{"events": {"0": true}}'}, "True is not an offset"),
        ({"startingOffsets": '{"events": {"x": 1}}'}, "startingOffsets"),
        ({"startingOffsets": "[1]"}, "startingOffsets"),
        ({"startingTime": "yesterday"}, "startingTime: 'yesterday' is neither a time"),
        ({"startingTime": "0", "startingOffsets": "latest"}, "startingOffsets and startingTime exclude each other"),
        ({"isolation": "serializable"}, "isolation: 'serializable' is not one of read_committed, read_uncommitted"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss: 'no' is not one of true, false"),
        ({"maxRecordsPerTask": "0"}, "maxRecordsPerTask: '0' is not a number above 0"),
        ({"maxBytesPerTrigger": "1k"}, "maxBytesPerTrigger: '1k' is not a number above 0"),
        ({"partitions": "1-"}, "partitions: '1-' is neither a partition nor a range"),
    ],
)
def test_what_can_t_be_used_is_named(given, message):
    with pytest.raises(SourceOptionError) as refused:
        parse_options(NEEDED | given)
    assert message in str(refused.value)


def test_a_pattern_must_be_one():
    with pytest.raises(SourceOptionError, match="topicPattern: '\\(' is not a regular expression"):
        parse_options({"bootstrap": "h:1", "topicPattern": "("})


@pytest.mark.parametrize(
    ("text", "offset"),
    [("earliest", 10), ("Latest", 90), ('{"t": {"0": 17}}', 17), ('{"t": {"0": -1}}', 90), ('{"t": {"0": -2}}', 10)],
)
def test_positions_by_offset(text, offset):
    assert resolve(parse_offsets("startingOffsets", text), "t", 0, LOG, lambda *_: 1 / 0) == offset


@pytest.mark.parametrize("text", ["2026-03-01T00:00:00", "2026-03-01T01:00:00+01:00", "1772323200000"])
def test_positions_by_time(text):
    asked = []
    position = parse_time("startingTime", text)
    assert resolve(position, "t", 3, LOG, lambda *place: asked.append(place) or 42) == 42
    assert asked == [("t", 3, 1_772_323_200_000)]
    assert resolve(position, "t", 3, LOG, lambda *_: None) == 90


def test_offsets_by_partition_name_exactly_what_is_read():
    position = parse_offsets("startingOffsets", '{"t": {"0": 1, "1": 1}}')
    check_named_partitions("startingOffsets", position, {"t": (0, 1)})
    with pytest.raises(SourceOptionError, match="startingOffsets: topic t, partition 2 is missing"):
        check_named_partitions("startingOffsets", position, {"t": (0, 1, 2)})
    with pytest.raises(SourceOptionError, match="startingOffsets: topic t, partition 1 is not read"):
        check_named_partitions("startingOffsets", position, {"t": (0,)})


def test_offsets_that_are_gone():
    with pytest.raises(OffsetsLostError, match="topic t, partition 0: offsets 5-9 were deleted by retention"):
        within_log(5, "t", 0, LOG, fail_on_data_loss=True)
    with pytest.raises(LogTruncatedError, match="offset 91 is asked for, the log ends at 90"):
        within_log(91, "t", 0, LOG, fail_on_data_loss=True)
    assert [within_log(offset, "t", 0, LOG, fail_on_data_loss=False) for offset in (5, 50, 91)] == [10, 50, 90]


def test_properties_of_security_and_their_file_are_passed_on_by_name():
    given = {"clientConfig": "env:CLIENT", "kafka.security.protocol": "SSL", "Millrace.ssl.truststore.type": "PEM"}
    options = parse_options({"bootstrap": "a:1", "topic": "t", **given})
    assert options.source("t").security == SecuritySource(
        "env:CLIENT", (("security.protocol", "SSL"), ("ssl.truststore.type", "PEM"))
    )
