"""The table of what tools print, `words_of_tools.tsv`: a line for each command line, with a reason where texts differ.

A command line whose other cells are empty is new: `pytest --rewrite-transcripts` fills them in. A text has no line
breaks; ` ¶ ` stands between its lines.
"""

from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).parents[1] / "recorded" / "words_of_tools.tsv"
BREAK = " ¶ "


class Row(NamedTuple):
    """A command line, and what Kafka's tools of both versions print of their own Kafka and of Millrace."""

    command: str
    kafka_3_9: str = ""
    millrace_by_3_9: str = ""
    kafka_4_1: str = ""
    millrace_by_4_1: str = ""
    reason: str = ""

    @property
    def agrees(self):
        """Whether Millrace says each line of both Kafkas."""
        pairs = ((self.kafka_3_9, self.millrace_by_3_9), (self.kafka_4_1, self.millrace_by_4_1))
        return all(line in ours for theirs, ours in pairs for line in theirs.split(BREAK))


def read():
    _, *lines = TABLE.read_text(encoding="utf-8").splitlines()
    return [Row(*line.split("\t")) for line in lines]


def write(rows):
    TABLE.write_text("".join("\t".join(row) + "\n" for row in [Row._fields, *rows]), encoding="utf-8")
