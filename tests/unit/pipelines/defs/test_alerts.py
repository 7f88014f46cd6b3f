"""What is told to a webhook, how often, and in which words."""

import pytest

from millrace_pipelines.defs.alert_sensor import (
    MAX_ALERTS,
    SENDING_S,
    SHOWN_CHARACTERS,
    Alert,
    Event,
    Kind,
    Look,
    Seen,
    Severity,
    Webhook,
    alert_of,
    cursor_of,
    message,
    parse_cursor,
    tell,
)
from millrace_pipelines.defs.ticks import pack_cursor
from millrace_pipelines.http import ServiceUnreachableError

ASSET = "millrace/table/flights"
NOTHING = Seen(0, {})


def made(description="", *, check="completeness", severity=Severity.ERROR, position=1, asset=ASSET):
    """Makes the evaluation of a check, which fails for a reason, or passes where there is none."""
    alert = Alert(
        kind=Kind.CHECK_FAILED if description else Kind.CHECK_RECOVERED,
        severity=severity if description else Severity.INFO,
        description=description,
        run_id="r",
        asset=asset,
        check=check,
    )
    return Event(position, alert)


def failed_run(position):
    alert = Alert(
        kind=Kind.RUN_FAILED,
        severity=Severity.ERROR,
        description="why",
        run_id=f"run-{position}",
        asset=None,
        job="load_millrace",
    )
    return Event(position, alert)


def told(*events, seen=NOTHING):
    """Returns the kind of each event's alert, None where it is not told."""
    kinds = []
    for event in events:
        alert, seen = alert_of(event, seen)
        kinds.append(alert and alert.kind)
    return kinds


FAILS, RECOVERS = Kind.CHECK_FAILED, Kind.CHECK_RECOVERED


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        ([made()], [None]),
        ([made("a"), made("a"), made("a")], [FAILS, None, None]),
        ([made("a"), made("b"), made("b")], [FAILS, FAILS, None]),
        ([made("a"), made(), made(), made("a")], [FAILS, RECOVERS, None, FAILS]),
        ([made("a"), made("a", severity=Severity.WARN)], [FAILS, FAILS]),
        ([made("a"), made("a", asset="millrace/table/b"), made("a")], [FAILS, FAILS, None]),
        ([made("a"), made("a", check="lag"), made(check="lag"), made()], [FAILS, FAILS, RECOVERS, RECOVERS]),
        ([made("offset 3 is missing"), made("offset 4 is missing")], [FAILS, FAILS]),
        ([made("70 s old", check="freshness"), made("970 s old", check="freshness")], [FAILS, None]),
        ([made("lacks 7 offsets", check="lag"), made("lacks 80 offsets", check="lag")], [FAILS, None]),
        ([made("lacks 7 offsets", check="lag"), made("the topic is gone", check="lag")], [FAILS, FAILS]),
        ([failed_run(1), failed_run(2)], [Kind.RUN_FAILED, Kind.RUN_FAILED]),
    ],
)
def test_a_failure_is_told_once(events, kinds):
    assert told(*events) == kinds


def test_an_alert_says_what_the_event_says():
    failing, seen = alert_of(made("late", check="freshness", severity=Severity.WARN, position=7), NOTHING)
    assert failing == Alert(
        kind=FAILS, severity=Severity.WARN, description="late", run_id="r", asset=ASSET, check="freshness"
    )
    assert seen.position == 7
    well, after = alert_of(made(check="freshness", position=8), seen)
    assert (well.severity, after) == (Severity.INFO, Seen(8, {}))


def test_the_cursor_keeps_what_was_told():
    _, seen = alert_of(made("ü"), NOTHING)
    assert parse_cursor(cursor_of(seen)) == seen
    assert told(made("ü"), seen=parse_cursor(cursor_of(seen))) == [None]


@pytest.mark.parametrize("text", [None, "", "{}", pack_cursor({"position": "1", "failing": {}}), pack_cursor([])])
def test_another_text_is_no_cursor(text):
    assert parse_cursor(text) is None


class Receiver:
    """Takes alerts, except those at the given turns; each takes some seconds of its clock."""

    def __init__(self, *refused, seconds=0.0):
        self.taken = []
        self.turns = 0
        self.now = 100.0
        self._refused = refused
        self._seconds = seconds

    def send(self, alert):
        self.turns += 1
        self.now += self._seconds
        if self.turns in self._refused:
            raise ServiceUnreachableError("hooks did not take the request: status 500")
        self.taken.append(alert.run_id)

    def tick(self, events, seen):
        look = Look(iter([event for event in events if event.position > seen.position]), 1000)
        return tell(look, seen, self.send, lambda: self.now)


def test_what_is_looked_at_is_not_looked_at_again():
    receiver = Receiver()
    assert receiver.tick([made(position=3), failed_run(5)], NOTHING) == (1, Seen(1000, {}), "")


def test_a_tick_sends_no_more_than_it_may_and_the_next_sends_the_rest():
    events = [failed_run(at) for at in range(1, MAX_ALERTS + 4)]
    receiver = Receiver()
    first = receiver.tick(events, NOTHING)
    assert first == (MAX_ALERTS, Seen(MAX_ALERTS, {}), "; the next tick sends the rest")
    assert receiver.tick(events, first.seen).alerts == 3
    assert receiver.taken == [event.alert.run_id for event in events]


def test_a_slow_receiver_does_not_use_up_the_time_of_a_tick():
    receiver = Receiver(seconds=SENDING_S / 2 - 1)
    first = receiver.tick([failed_run(at) for at in range(1, 9)], NOTHING)
    assert (first.alerts, first.seen.position) == (3, 3)


def test_the_tick_fails_where_its_first_alert_is_not_taken():
    receiver = Receiver(1)
    with pytest.raises(ServiceUnreachableError, match="did not take"):
        receiver.tick([failed_run(1)], NOTHING)


def test_an_alert_that_is_not_taken_is_sent_again_and_none_before_it():
    events = [made("a", position=1), failed_run(2), failed_run(3)]
    receiver = Receiver(3)
    first = receiver.tick(events, NOTHING)
    assert (first.alerts, first.seen.position) == (2, 2)
    assert first.rest.endswith("was not taken: hooks did not take the request: status 500")
    second = receiver.tick(events, first.seen)
    assert (second.alerts, second.rest) == (1, "")
    assert receiver.taken == ["r", "run-2", "run-3"]


def alert(**fields):
    return Alert(
        **{"kind": FAILS, "severity": Severity.WARN, "description": "why", "run_id": "r", "asset": ASSET} | fields
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"check": "lag"}, f"eu: the check lag of {ASSET} fails (WARN): why"),
        ({"check": "lag", "kind": RECOVERS}, f"eu: the check lag of {ASSET} passes again: why"),
        ({"kind": Kind.RUN_FAILED, "job": "__ASSET_JOB"}, f"eu: a run of {ASSET} failed: why"),
        ({"kind": Kind.RUN_FAILED, "job": "eu_load", "asset": None}, "eu: a run of eu_load failed: why"),
        (
            {"check": "lag", "description": "<!channel> & co"},
            f"eu: the check lag of {ASSET} fails (WARN): &lt;!channel&gt; &amp; co",
        ),
    ],
)
def test_the_text_is_a_sentence(fields, text):
    assert message(alert(**fields), "eu", "")["text"] == text


def test_a_message_has_the_fields_of_the_alert():
    assert message(alert(check="lag"), "eu", "http://dagster/") == {
        "text": f"eu: the check lag of {ASSET} fails (WARN): why\nhttp://dagster/runs/r",
        "kind": "check_failed",
        "cluster": "eu",
        "asset": ASSET,
        "check": "lag",
        "job": None,
        "run_id": "r",
        "url": "http://dagster/runs/r",
        "severity": "WARN",
        "description": "why",
    }


def test_a_check_that_no_run_made_has_no_address():
    sent = message(alert(check="lag", run_id=""), "eu", "http://dagster")
    assert (sent["run_id"], sent["url"]) == (None, None)


def test_a_long_description_is_cut():
    assert len(message(alert(description="x" * 9999), "eu", "")["description"]) == SHOWN_CHARACTERS + 1


def test_the_address_is_not_shown():
    assert "secret" not in repr(Webhook(url="http://h/secret", cluster="eu", dagster_url=""))
