"""What whoever reads a topic chooses; imports nothing, for the command line's sake."""

from enum import StrEnum


class Isolation(StrEnum):
    """Whether records of open and aborted transactions are left out."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Reader(StrEnum):
    """Who fetches and decodes: Millrace's own client in the task, or Spark's Kafka connector in the JVM."""

    MILLRACE = "millrace"
    SPARK_KAFKA = "spark-kafka"
