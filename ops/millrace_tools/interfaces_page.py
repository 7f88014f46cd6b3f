"""Makes docs/api.md from the public names of the packages: `python -m millrace_tools.interfaces_page > docs/api.md`.

A test compares the page with what this module makes, so that the page is always up to date. On the documentation's site
each comment `<!-- api: NAME -->` becomes the whole reference of that name.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import NamedTuple

HEAD = """\
# Python interfaces

Made by `python -m millrace_tools.interfaces_page` from docstrings; edit nothing here. These are the names that programs
may rely on, as [releasing.md](releasing.md#what-a-version-promises) says. `help(name)` prints the whole documentation
of a name, which is also on this page where it is read on the documentation's site. Errors are those of
`millrace.errors`, a tree below `MillraceError`.
"""


class Section(NamedTuple):
    """A heading, what is said below it, and the names of a module; all that it exports where none are given."""

    title: str
    text: str
    module: str
    names: Sequence[str] = ()


SECTIONS = (
    Section(
        "Producer", "[clients.md](clients.md#producer) has examples and all properties.", "millrace.client.producer"
    ),
    Section(
        "Consumer groups that ZooKeeper coordinates",
        "[clients.md](clients.md#consumerconnector) has examples and all properties.",
        "millrace.client.consumer",
    ),
    Section(
        "Reading by offset, and administration",
        "`millrace.SimpleConsumer` is the same as the one here. [clients.md](clients.md#simpleconsumer) has examples.",
        "millrace.client",
    ),
    Section(
        "Members of groups",
        "[clients.md](clients.md#groupmember) has an example.",
        "millrace.client.group_member",
        ("GroupMember", "GroupMemberClosedError"),
    ),
    Section(
        "Rows for pandas and polars",
        "`read_topic` and `query` return these. "
        "[clients.md](clients.md#topics-as-arrow-pandas-and-polars) has examples.",
        "millrace.arrow_rows",
        ("ArrowRows",),
    ),
    Section(
        "Records",
        "What is sent by `SyncProducer` and by a broker for tests.",
        "millrace.records.record",
        ("NewRecord", "Record"),
    ),
    Section(
        "Batches from one topic to another",
        "[clients.md](clients.md#ready-batches) has an example.",
        "millrace.records.rebatch",
        ("producible", "Rebatched", "SourceRun"),
    ),
    Section(
        "Brokers for tests",
        "[testing.md](testing.md) has the fixtures.",
        "millrace.testing.local_broker",
        ("LocalBroker",),
    ),
    Section(
        "Loads",
        "[warehouse.md](warehouse.md#in-python) and [warehouse-modes.md](warehouse-modes.md) have examples.",
        "millrace_pipelines.warehouse",
        (
            "load_topic",
            "preview_load",
            "LoadOptions",
            "reload_topic",
            "preview_reload",
            "Selection",
            "query",
            "spark_table",
        ),
    ),
    Section(
        "Topics in Spark",
        "[warehouse-reading.md](warehouse-reading.md#topics-in-spark) has the options.",
        "millrace_pipelines.spark.source",
        ("MillraceDataSource",),
    ),
    Section("Results of your own", "[downstream.md](downstream.md) has an example.", "millrace_pipelines.downstream"),
    Section(
        "Offsets of mirrored topics",
        "Of topics that a mirror has copied or follows, from the source to the target and back.",
        "millrace_pipelines.mirror.translation",
        ("translate_offset", "translate_group", "TranslatedOffset", "Fit"),
    ),
    Section(
        "Dagster", "[dagster.md](dagster.md#declare) has its fields.", "millrace_pipelines", ("MillraceComponent",)
    ),
)


def render() -> str:
    """Returns the page."""
    return "\n".join((HEAD, *(line for section in SECTIONS for line in _lines(section))))


def public_names(section: Section) -> list[str]:
    """Returns the names of a section."""
    return list(section.names or import_module(section.module).__all__)


def _lines(section: Section) -> Iterator[str]:
    names = public_names(section)
    yield f"## {section.title}\n\nIn `{section.module}`. {section.text}\n\n| name | |\n|---|---|"
    for name in names:
        yield f"| `{name}` | {_first_sentence(getattr(import_module(section.module), name))} |"
    yield ""
    for name in names:
        yield f"<!-- api: {section.module}.{name} -->\n"


def _first_sentence(documented: object) -> str:
    paragraph = " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?]) (?=[A-Z`])|(?<=:)$", paragraph)[0]
    return sentence.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
