"""A table that is loaded again and again beside a history, and what it may hold in the end.

It holds each acknowledged or committed record once, no aborted record, and each record of unknown outcome at most once.
"""

import logging
from collections import defaultdict

import pyarrow.dataset as ds
from again_and_again import AgainAndAgain

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_tools.histories.events import Action, Outcome

logger = logging.getLogger(__name__)


class TableBeside(AgainAndAgain):
    """Loads a topic into a table."""

    def __init__(self, bootstrap, topic, table, spark):
        super().__init__("loads")
        self.options = LoadOptions(topic=topic, table=str(table), bootstrap=bootstrap)
        self.spark = spark

    def do_once(self):
        report = load_topic(self.options, spark=self.spark)
        logger.info("a load has %d rows in %.1f s", report.rows, report.seconds)
        self.ends["loads of nothing" if report.version is None else "loads"] += 1
        return True

    def rows(self):
        """Yields (TOPIC-PARTITION, offset, value) of each row."""
        files = Table.load(self.options.table, OsFileSystem()).files()
        columns = ds.dataset(files).to_table(columns=["partition", "offset", "value"]).to_pydict()
        for partition, offset, value in zip(*columns.values(), strict=True):
            yield f"{self.options.topic}-{partition}", offset, int(value)

    def audited(self):
        """Returns the findings of Millrace's audit of the table against its topic."""
        return audit(self.options.table, bootstrap=self.options.bootstrap)


def differences(operations, rows):
    """Returns a sentence for each difference between the rows and the answers that the clients got."""
    places, sent = defaultdict(list), {}
    for partition, offset, value in rows:
        places[value].append((partition, offset))
    for operation in operations:
        for send in operation.sends():
            sent[send.value] = operation, send
    found = [f"value {value} was sent by nobody, and is at {places[value]}" for value in places.keys() - sent.keys()]
    for value, (operation, send) in sent.items():
        if not is_as_told(operation, send, places.get(value, [])):
            found.append(f"value {value} of {operation}, which is {operation.outcome}, is at {places.get(value)}")
    return found


def is_as_told(operation, send, places):
    """Returns whether a sent value is at the offset that its sender was told, and nowhere else."""
    is_acknowledged = operation.action is Action.SEND and send.offset is not None
    if operation.outcome is Outcome.FAIL:
        return not places
    if operation.outcome is Outcome.OK or is_acknowledged:
        return places == [(send.partition, places[0][1] if places and send.offset is None else send.offset)]
    return len(places) <= 1 and all(partition == send.partition for partition, _ in places)
