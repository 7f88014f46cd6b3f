"""What a process of loads tells reaches the run, whenever it is told."""

import json
from pathlib import Path

import pytest
from dagster_pipes import PipesDefaultMessageWriter

from millrace_pipelines.defs.load_process import MessageFile


class Handler:
    """Keeps what it is handed."""

    def __init__(self):
        self.handled = []

    def handle_message(self, message):
        self.handled.append(message)


@pytest.fixture
def handler():
    return Handler()


def tell(parameters, *texts):
    with Path(parameters[PipesDefaultMessageWriter.FILE_PATH_KEY]).open("a", encoding="utf-8") as file:
        file.writelines(texts)


def line(**message):
    return json.dumps(message) + "\n"


def test_what_is_told_is_handed_on_once(handler):
    reader = MessageFile()
    with reader.read_messages(handler) as parameters:
        reader.read()
        tell(parameters, line(of="a"), line(of="b"))
        reader.read()
        assert handler.handled == [{"of": "a"}, {"of": "b"}]
        tell(parameters, line(of="c"))
        reader.read()
        assert handler.handled[2:] == [{"of": "c"}]


def test_what_is_told_after_the_last_look_is_handed_on_at_the_end(handler):
    reader = MessageFile()
    with reader.read_messages(handler) as parameters:
        reader.read()
        tell(parameters, line(of="the last moment"))
    assert handler.handled == [{"of": "the last moment"}]


def test_a_line_counts_once_it_is_whole(handler):
    reader = MessageFile()
    with reader.read_messages(handler) as parameters:
        told = line(of="größer")
        tell(parameters, line(of="a"), told[:5])
        reader.read()
        assert handler.handled == [{"of": "a"}]
        tell(parameters, told[5:], '{"of": "kil')
    assert handler.handled == [{"of": "a"}, {"of": "größer"}]


def test_a_process_that_told_nothing_is_asked_for_in_the_file(handler):
    reader = MessageFile()
    with reader.read_messages(handler) as parameters:
        assert parameters[PipesDefaultMessageWriter.FILE_PATH_KEY] in reader.no_messages_debug_text()
