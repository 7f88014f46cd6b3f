"""What a reader of a topic chooses; the module imports nothing, so that the command line starts fast."""

from enum import StrEnum


class Isolation(StrEnum):
    """Whether a read leaves out records of open and aborted transactions (READ_COMMITTED), or takes all."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Reader(StrEnum):
    """What fetches and decodes records: Millrace's own client in the task, or Spark's Kafka connector in the JVM."""

    MILLRACE = "millrace"
    SPARK_KAFKA = "spark-kafka"
