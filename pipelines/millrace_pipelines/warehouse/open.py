"""The tables of a load: made at the first one, and held to the topic and the schema they were made for."""

from __future__ import annotations

from typing import NamedTuple

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.dead_letters import dead_letters_dir
from millrace_pipelines.warehouse.errors import SchemaError, TopicRecreatedError
from millrace_pipelines.warehouse.ledger import TOPIC_ID_PROPERTY, TOPIC_PROPERTY, ledger_of
from millrace_pipelines.warehouse.schema import (
    DEAD_LETTER_SCHEMA,
    PayloadSchema,
    parse_payload_schema,
    table_schema,
)
from millrace_pipelines.warehouse.table import Table

PAYLOAD_SCHEMA_PROPERTY = "millrace.payloadSchema"


class LoadTables(NamedTuple):
    """The rows' table, the payload it was made for, and the dead letters' table where there is a payload."""

    rows: Table
    payload: PayloadSchema | None
    dead_letters: Table | None


def open_tables(directory: str, topic: str, topic_id: str, payload: PayloadSchema | None, fs: FileSystem) -> LoadTables:
    """Load the tables, or make them; a table that is there gives its own payload schema where none is declared.

    Raises:
        TopicRecreatedError: The table belongs to another topic, or to an earlier one of this name.
        SchemaError: The declared schema is not the one that the table was made for.
    """
    properties = {TOPIC_PROPERTY: topic, TOPIC_ID_PROPERTY: topic_id}
    declared = {} if payload is None else {PAYLOAD_SCHEMA_PROPERTY: payload.to_json()}
    rows = Table.load_or_create(
        directory, fs, schema=table_schema(payload), name=topic, configuration=properties | declared
    )
    _check_topic(rows, topic, topic_id)
    text = rows.configuration.get(PAYLOAD_SCHEMA_PROPERTY)
    own = None if text is None else parse_payload_schema(text)
    if payload is not None and payload != own:
        raise SchemaError(
            f"{directory} was made for another schema ({text or 'the raw envelope'}); load into another table"
        )
    if own is None:
        return LoadTables(rows, None, None)
    dead_letters = Table.load_or_create(
        dead_letters_dir(directory),
        fs,
        schema=DEAD_LETTER_SCHEMA,
        name=f"{topic} dead letters",
        configuration=properties,
    )
    _check_topic(dead_letters, topic, topic_id)
    return LoadTables(rows, own, dead_letters)


def _check_topic(table: Table, topic: str, topic_id: str) -> None:
    ledger = ledger_of(table)
    if ledger.topic != topic:
        raise TopicRecreatedError(f"{table.directory} holds topic {ledger.topic}, not {topic}; load into another table")
    if ledger.topic_id != topic_id:
        raise TopicRecreatedError(
            f"topic {topic} was deleted and made anew since {table.directory} was loaded: its id is {topic_id}, the "
            f"table's {ledger.topic_id}; its offsets begin again, so load it into another table"
        )
