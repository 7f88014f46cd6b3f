"""Runs of Dagster as the page of jobs shows them, from the answers of its API."""

import pytest

from millrace_ops.console.dagster import asset_url, parse_run

RUN = {
    "runId": "1/../2",
    "status": "STARTED",
    "jobName": "__ASSET_JOB",
    "creationTime": 100.5,
    "startTime": 101.0,
    "endTime": None,
    "assetSelection": None,
    "tags": [],
}


def run(**fields):
    return parse_run({**RUN, **fields}, "http://d:1", now_s=161.0)


def assets(*names):
    return [{"path": ["millrace", "table", name]} for name in names]


def tags(**named):
    return [{"key": f"dagster/{key}", "value": value} for key, value in named.items()]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, "__ASSET_JOB"),
        ({"assetSelection": []}, "__ASSET_JOB"),
        ({"assetSelection": assets("b", "a")}, "millrace/table/a, millrace/table/b"),
        (
            {"assetSelection": assets("e", "d", "c", "b", "a")},
            "millrace/table/a, millrace/table/b, millrace/table/c and 2 more",
        ),
    ],
)
def test_a_run_is_called_by_what_it_makes(fields, what):
    assert run(**fields).what == what


@pytest.mark.parametrize(
    ("named", "started_by"),
    [
        ({}, "hand"),
        ({"schedule_name": "nightly"}, "schedule nightly"),
        ({"sensor_name": "loads"}, "sensor loads"),
        ({"backfill": "abc", "partition": "2026-07-01"}, "backfill abc, partition 2026-07-01"),
    ],
)
def test_a_run_says_who_started_it(named, started_by):
    assert run(tags=tags(**named)).started_by == started_by


@pytest.mark.parametrize(
    ("started_s", "ended_s", "duration_ms"),
    [(None, None, None), (101.0, None, 60_000), (101.0, 103.5, 2_500), (200.0, None, 0)],
)
def test_a_run_lasts_until_it_ends_or_until_now(started_s, ended_s, duration_ms):
    assert run(startTime=started_s, endTime=ended_s).duration_ms == duration_ms
    assert run().created_ms == 100_500


def test_addresses_are_quoted():
    assert run().url == "http://d:1/runs/1%2F..%2F2"
    assert asset_url("http://d:1", ("millrace", "table", "a/b?c")) == "http://d:1/assets/millrace/table/a%2Fb%3Fc"
