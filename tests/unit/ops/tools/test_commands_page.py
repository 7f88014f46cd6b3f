"""docs/commands.md says what the commands' own help says."""

from pathlib import Path

from millrace_tools.commands_page import render

PAGE = Path(__file__).parents[4] / "docs" / "commands.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == render(), "python -m millrace_tools.commands_page > docs/commands.md"


def test_a_command_has_its_extras_arguments_and_options():
    section = render().partition("### millrace dead-letters show\n")[2].partition("\n##")[0]
    assert "Needs `millrace-log[tables]`. " in section
    assert "millrace dead-letters show [OPTIONS] DIR PARTITION OFFSET" in section
    assert "| `PARTITION` |" in section
    assert "| `--json` |" in section
