"""The console tells of brokers in trouble or gone, of a warehouse that is missing, and of moves within a cluster."""

import html
import json
import re
import time
from html import unescape

import pytest

from millrace.client import Admin, Cluster, Configs, ResourceKind, SyncProducer
from millrace.client.replicas import Reassignments
from millrace.clock import SystemClock
from millrace.errors import BrokerUnreachableError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.testing.local_broker import LocalBroker
from millrace.wire.api import ApiKey
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_ops.console.watch import IDLE_S, Clusters, Watch
from millrace_support.console_pages import PROPERTIES, Browser, cells
from millrace_support.raw import RawConnection
from millrace_support.set_clock import SetClock
from millrace_support.waiting import until


def own_troubles(browser):
    """What the page says of the broker that serves it."""
    [section] = re.findall(r'<section aria-labelledby="own">(.*?)</section>', browser.page(""), re.DOTALL)
    return [unescape(one) for one in re.findall(r"<(?:li|p)[^>]*>(.*?)</(?:li|p)>", section)]


@pytest.mark.broker_errors(
    r"data_dirs\.log_checkpoints: \S+: \S+-checkpoint: No such file",
    r"storage\.failures: \S+ is offline: the folder is gone",
    r"admin\.chores: maintenance failed; tried again in \d+ ms: \S+-checkpoint: No such file",
)
def test_the_brokers_page_says_what_ails_the_broker_that_serves_it(tmp_path):
    clock = SetClock(tmp_path / "clock")
    lost = tmp_path / "<lost>"
    properties = {**PROPERTIES, "admin.console": "read-only", "zookeeper.session.timeout.ms": "4000"}
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper,
        BrokerProcess(
            tmp_path / "data",
            zookeeper=zookeeper.address,
            more_data_dirs=[lost],
            properties=properties,
            program=clock.program,
        ) as started,
        Cluster(started.bootstrap) as cluster,
    ):
        browser = Browser(started.admin_url)
        until(lambda: own_troubles(browser) == ["Well."])
        Admin(cluster).create_topic("t", 2)
        lost.rename(tmp_path / "elsewhere")
        until(lambda: any(f"data directory {lost} is offline" in one for one in own_troubles(browser)))
        clock.set(3600)
        until(lambda: any("clock was set forward by" in one for one in own_troubles(browser)))
        zookeeper.stop()
        until(lambda: any("ZooKeeper" in one for one in own_troubles(browser)))


@pytest.mark.parametrize("form", ["text", "json"])
def test_its_log_has_the_form_of_the_broker_s(tmp_path, form):
    properties = {
        **PROPERTIES,
        "admin.console": "read-only",
        "admin.console.warehouse": str(tmp_path / "nothing"),
        "logging.format": form,
    }
    with BrokerProcess(tmp_path / "data", properties=properties) as started:
        for _ in range(2):  # pages ask for themselves again
            assert Browser(started.admin_url).status("tables") == 400
        started.stop()
        lines = started.read_log().splitlines()
    if form == "json":
        lines = [f"{one['level']} {one['logger']}: {one['message']}" for one in map(json.loads, lines)]
    else:
        assert all(re.match(r"    |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", one) for one in lines)
    [line] = [one for one in lines if "WARNING millrace_ops.console.pages.tables: " in one]
    assert line.endswith("can't be listed: No such file or directory")


def test_a_warehouse_that_is_not_there_yet_is_named_and_jobs_are_shown_without_it(tmp_path):
    missing = tmp_path / "nothing"
    properties = {**PROPERTIES, "admin.console": "read-only", "admin.console.warehouse": str(missing)}
    with LocalBroker(properties=properties) as started:
        browser = Browser(started.admin_url)
        sentence = f"the tables of admin.console.warehouse={missing} can't be listed: No such file or directory"
        status, _, tables = browser.ask("tables")
        assert (status, sentence in html.unescape(tables)) == (400, True)
        assert "the first load into it makes it" in tables
        jobs = html.unescape(browser.page("jobs"))
        assert sentence in jobs
        assert "Moves of partitions" in jobs


def test_the_watch_tells_of_a_broker_that_is_gone_and_goes_on_when_it_is_back():
    with LocalBroker(properties=PROPERTIES) as started:
        started.create_topic("watched", 3)
        started.produce("watched", [b"x"] * 7)
        watch = Watch(Clusters(lambda: Cluster(started.bootstrap)), SystemClock())
        found = watch.overview()
        assert (found.topics["watched"].partitions, found.topics["watched"].records) == (3, 7)
        started.stop()
        until(lambda: not is_well_now(watch))  # a look may have begun before the broker stopped
        started.start()
        until(lambda: (found := is_well(watch)) and found.topics["watched"].records == 7)


def test_whoever_comes_back_after_a_long_time_sees_the_cluster_as_it_is_now():
    class Later(SystemClock):
        """A clock that can be set forward."""

        ahead_s = 0.0

        def monotonic_s(self):
            return time.perf_counter() + self.ahead_s

    with LocalBroker(properties=PROPERTIES) as started:
        clock = Later()
        watch = Watch(Clusters(lambda: Cluster(started.bootstrap)), clock)
        until(lambda: watch.overview().topics == {} and watch._looks > 1)
        clock.ahead_s = 2 * IDLE_S
        started.create_topic("new")
        assert "new" in watch.overview().topics


def is_well_now(watch):
    watch.look()
    return is_well(watch)


def is_well(watch):
    try:
        return watch.overview()
    except BrokerUnreachableError:
        return None


def test_pages_show_the_whole_cluster_and_how_far_a_move_is(zookeeper, tmp_path):
    connect = f"{zookeeper.address}/console"
    properties = {**PROPERTIES, "admin.console": "read-only"}
    with (
        BrokerProcess(tmp_path / "1", zookeeper=connect, broker_id=1, properties=properties) as first,
        BrokerProcess(tmp_path / "2", zookeeper=connect, broker_id=2, properties=properties) as second,
        Cluster(first.bootstrap) as cluster,
    ):
        until(lambda: len(cluster.metadata([]).brokers) == 2)
        Admin(cluster).create_topic("spread", 2)
        Admin(cluster).create_topic("moved", 1)
        [partition] = cluster.metadata(["moved"]).topic("moved").partitions.values()
        [target] = {1, 2} - {partition.leader}
        for _ in range(6):
            SyncProducer(cluster).send("moved", 0, [NewRecord(b"x" * 900_000)])
        everything = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}
        Configs(cluster).change(ResourceKind.TOPIC, "moved", everything)
        for broker_id in ("1", "2"):
            rates = {f"{side}.replication.throttled.rate": "1" for side in ("leader", "follower")}
            Configs(cluster).change(ResourceKind.BROKER, broker_id, rates)
        assert Reassignments(cluster).alter({("moved", 0): [target]}) == {}
        for browser in (Browser(first.admin_url), Browser(second.admin_url)):
            until(lambda browser=browser: "moved-0" in browser.page("jobs"))
            rows = cells(browser.page(""))[1:]
            assert [(row[0], row[1].split()[0]) for row in rows] == [("1", first.bootstrap), ("2", second.bootstrap)]
            assert {row[1] for row in cells(browser.page("topic?name=spread"))[1:3]} == {"1", "2"}
            [move] = cells(browser.page("jobs"))[1:]
            assert move[:3] == ["moved-0", str(partition.leader), str(target)]
            assert 0 <= int(move[3].split()[-2]) < 100
        assert Reassignments(cluster).cancel([("moved", 0)]) == {}
        until(lambda: "moved-0" not in browser.page("jobs"))


def test_a_copy_between_data_directories_and_how_far_it_is(tmp_path):
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    folders = [tmp_path / "one", tmp_path / "two"]
    properties = {**PROPERTIES, "admin.console": "read-only", "log.segment.bytes": "400000", rate: "20000"}
    with (
        BrokerProcess(folders[0], more_data_dirs=folders[1:], properties=properties) as started,
        Cluster(started.bootstrap) as cluster,
    ):
        Admin(cluster).create_topic("copied", 1)
        for number in range(30):
            SyncProducer(cluster).send("copied", 0, [NewRecord(b"%06d" % number * 30_000)])
        [origin] = [str(one.parent) for folder in folders for one in folder.glob("copied-0")]
        [target] = {str(one) for one in folders} - {origin}
        place = {"dirs": [{"path": target, "topics": [{"name": "copied", "partitions": [0]}]}]}
        with RawConnection(started.bootstrap) as connection:
            [answer] = connection.request(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, place).results
        assert answer.partitions[0].error_code == 0
        browser = Browser(started.admin_url)
        until(lambda: "copied-0" in browser.page("jobs"))
        [copy] = cells(browser.page("jobs"))[1:]
        assert copy[:4] == ["copied-0", "1", origin, target]
        assert 0 < int(copy[4]) <= 30
        assert 0 <= int(copy[5].split()[-2]) < 100
        Configs(cluster).change(ResourceKind.BROKER, "1", {rate: "1000000000"})
        until(lambda: "copied-0" not in browser.page("jobs"))
