"""docs/protocol.md says what the registry serves."""

from pathlib import Path

from millrace_broker.handlers.registry import _FIRST_ASKED, APIS, warm_up
from millrace_tools.protocol_page import MEMBER_APIS, render

PAGE = Path(__file__).parents[4] / "docs" / "protocol.md"


def test_the_protocol_page_is_up_to_date():
    made = render(MEMBER_APIS)
    assert PAGE.read_text(encoding="utf-8") == made, "python -m millrace_tools.protocol_page > docs/protocol.md"


def test_the_codecs_of_the_first_requests_can_be_made():
    assert all(version in APIS[key].versions for key, version in _FIRST_ASKED)
    warm_up()
