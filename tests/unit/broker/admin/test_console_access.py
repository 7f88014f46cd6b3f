"""Who may see the console, and which requests may change something."""

import pytest

from millrace_broker.admin.guard import OPEN, SESSION_S, ConsoleAccess, is_own_origin
from millrace_support.clock import ManualClock

KEY = bytes(range(32))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def access(clock):
    return ConsoleAccess("hush", KEY, clock)


def test_the_right_token_gives_a_session_that_ends(access, clock):
    session = access.new_session("hush")
    assert access.session(session, "") == session
    clock.advance(1000 * SESSION_S + 1000)
    assert access.session(session, "") is None


@pytest.mark.parametrize("token", ["", "hus", "hush ", "Hush", "hüsh", "\udcff"])
def test_another_token_gives_none(access, token):
    assert access.new_session(token) is None


def test_the_token_itself_is_as_good_as_a_session(access):
    assert access.session("", "Bearer hush") == OPEN
    assert access.session("", "Bearer hus") is None
    assert access.session("", "\udcff") is None


def test_a_session_cannot_be_made_or_prolonged(access, clock):
    session = access.new_session("hush")
    expiry, signature = session.split(".")
    forged = [f"{int(expiry) + 1}.{signature}", f"{expiry}.", expiry, "", ".", OPEN, f"x.{signature}", f"{expiry}.ÿ"]
    assert [access.session(one, "") for one in forged] == [None] * len(forged)
    assert ConsoleAccess("hush", bytes(32), clock).session(session, "") is None, "another process"


def test_a_form_is_of_its_session_and_its_origin(access):
    mine, other = access.new_session("hush"), "another"
    form = {"form_token": access.form_token(mine)}
    assert access.may_post(mine, form, "http://broker:9644", "broker:9644")
    assert access.may_post(mine, form, None, "broker:9644")
    assert not access.may_post(mine, form, "http://evil.example", "broker:9644")
    assert not access.may_post(mine, form, "null", "broker:9644")
    assert not access.may_post(other, form, None, "broker:9644")
    assert not access.may_post(mine, {}, None, "broker:9644")
    assert not access.may_post(mine, {"form_token": access.new_session("hush")}, None, "broker:9644")
    assert not access.may_post(mine, {"form_token": "ÿ"}, None, "broker:9644")


@pytest.mark.parametrize("host", ["127.0.0.1:9644", "localhost:9644", "[::1]:9644", "127.0.0.2", "localhost"])
def test_without_a_token_this_machine_is_served(clock, host):
    assert ConsoleAccess("", KEY, clock).serves_host(host)
    assert ConsoleAccess("", KEY, clock).session("", "") == OPEN


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9644", "10.0.0.1:9644", "localhost.evil.example", ""])
def test_without_a_token_no_other_name_is_served(clock, access, host):
    """A page of another site, whose name leads here, would read what it likes."""
    assert not ConsoleAccess("", KEY, clock).serves_host(host)
    assert access.serves_host(host), "behind a token, the name is the operator's"


def test_an_origin_is_a_scheme_and_the_host():
    assert is_own_origin("https://a:1", "a:1")
    assert not is_own_origin("https://a:1.evil", "a:1")
