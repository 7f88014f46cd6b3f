"""The plan of an adoption says which brokers lead and follow, what followers cut, and what is refused."""

import pytest

from millrace_ops.replicas.adoption import (
    EPOCH_MARGIN,
    MAX_PARTITIONS,
    PRODUCER_ID_MARGIN,
    AdoptedPartition,
    AdoptionRefusedError,
    AdoptionRequest,
    BrokerReport,
    Cut,
    Held,
    OfflineReplica,
    StrayReplica,
    held_together,
    kept_offset,
    plan_adoption,
)

ONE, TWO = "A" * 21 + "E", "A" * 21 + "I"
T = AdoptionRequest("t")


def log(broker, partition, end=10, epochs=((0, 0),), **fields):
    known = {
        "topic_id": ONE,
        "log_start_offset": 0,
        "newest_leader_epoch": epochs[-1][0] if epochs else -1,
        "first_free_producer_id": 0,
        "bytes": 7,
    }
    return StrayReplica(broker=broker, partition=partition, log_end_offset=end, leader_epochs=epochs, **known | fields)


def planned(*logs, wanted=T, brokers=(1, 2, 3), offline=()):
    return plan_adoption(wanted, Held(brokers, logs, offline))


def refused(*logs, **options):
    with pytest.raises(AdoptionRefusedError) as error:
        planned(*logs, **options)
    return str(error.value)


def test_equal_logs_lead_by_turns_and_nothing_is_cut():
    plan = planned(*(log(broker, index) for index in range(3) for broker in (3, 1, 2)))
    assert [(one.leader, one.replicas, one.cuts) for one in plan.partitions] == [
        (1, (1, 2, 3), ()),
        (2, (2, 1, 3), ()),
        (3, (3, 1, 2), ()),
    ]
    assert (plan.topic, plan.topic_id) == ("t", ONE)
    assert {(one.log_start_offset, one.log_end_offset, one.bytes) for one in plan.partitions} == {(0, 10, 7)}


def test_the_newest_epoch_leads_and_not_the_longest_log():
    plan = planned(log(1, 0, 120, ((5, 0),)), log(2, 0, 101, ((5, 0), (6, 100))), log(3, 0, 100, ((5, 0),)))
    (partition,) = plan.partitions
    assert (partition.leader, partition.replicas) == (2, (2, 1, 3))
    assert partition.cuts == (Cut(1, 100, 20),)


def test_of_the_same_epoch_the_longest_leads():
    (partition,) = planned(log(1, 0, 9), log(2, 0, 10), log(3, 0, 8)).partitions
    assert (partition.leader, partition.cuts) == (2, ())


@pytest.mark.parametrize(
    ("leader", "follower", "kept"),
    [
        (log(1, 0, 30, ((1, 0), (2, 10), (5, 20))), log(2, 0, 30, ((1, 0), (2, 10), (3, 25))), 20),
        (log(1, 0, 30, ((1, 0), (5, 20))), log(2, 0, 40, ((1, 0), (2, 10), (3, 25))), 10),
        (log(1, 0, 30, ((4, 0), (5, 20))), log(2, 0, 40, ((1, 0), (2, 10))), 0),
        (log(1, 0, 30, ((1, 0), (5, 20))), log(2, 0, 20, ((1, 0),)), 20),
        (log(1, 0, 30, ((1, 0), (5, 20))), log(2, 0, 15, ((1, 0),)), 15),
        (log(1, 0, 30, ((5, 20),), log_start_offset=20), log(2, 0, 25, ((1, 0), (5, 20))), 25),
        (log(1, 0, 30, ()), log(2, 0, 20, ()), 20),
        (log(1, 0, 30, ()), log(2, 0, 40, ()), 30),
        (log(1, 0, 30, ((5, 0),)), log(2, 0, 0, ()), 0),
    ],
)
def test_a_follower_keeps_what_the_leader_has_too(leader, follower, kept):
    assert kept_offset(leader, follower) == kept


def test_epochs_and_producer_ids_go_on_above_all_logs():
    plan = planned(log(1, 0, newest_leader_epoch=8), log(2, 1, first_free_producer_id=2000))
    assert (plan.leader_epoch, plan.first_free_producer_id) == (8 + EPOCH_MARGIN, 2000 + PRODUCER_ID_MARGIN)
    assert (plan.leader_epoch > 108, plan.first_free_producer_id > 10_000) == (True, True)
    assert planned(log(1, 0, 0, ())).leader_epoch == EPOCH_MARGIN - 1


def test_a_topic_without_logs_is_refused():
    assert refused() == "no broker has a stray log of topic t that can be adopted"
    assert refused(offline=(OfflineReplica(2, 0, "/two"),)) == (
        "no broker has a stray log of topic t that can be adopted; broker 2 has partition 0 in /two, which is offline"
    )


def test_a_partition_without_a_log_is_lost_only_where_that_is_accepted():
    logs = (log(1, 0), log(2, 0), log(1, 3))
    assert refused(*logs) == ("topic t: no log of partition(s) 1,2 can be adopted; --accept-loss lets them begin empty")
    plan = planned(*logs, wanted=AdoptionRequest("t", accepts_loss=True))
    assert plan.partitions[1:3] == (
        AdoptedPartition(1, 2, (2, 3), 0, 0, 0, is_lost=True),
        AdoptedPartition(2, 3, (3, 1), 0, 0, 0, is_lost=True),
    )
    assert [one.is_lost for one in plan.partitions] == [False, True, True, False]


def test_the_last_partitions_are_missed_only_where_their_number_is_known():
    assert len(planned(log(1, 0)).partitions) == 1
    for wanted in (AdoptionRequest("t", partitions=3), AdoptionRequest("t", least_partitions=3)):
        assert "no log of partition(s) 1,2 can be adopted" in refused(log(1, 0), wanted=wanted)
    assert len(planned(log(1, 0), wanted=AdoptionRequest("t", partitions=1, least_partitions=3)).partitions) == 1
    assert refused(log(1, 2), wanted=AdoptionRequest("t", partitions=2)) == (
        "topic t has a log of partition 2, so it had 3 partitions or more"
    )
    many = MAX_PARTITIONS + 1
    assert refused(log(1, 0), wanted=AdoptionRequest("t", partitions=many)) == (
        f"topic t has {many} partitions; {MAX_PARTITIONS} can be adopted"
    )


def test_a_log_that_is_offline_is_not_adopted():
    only = OfflineReplica(2, 1, "/two")
    assert refused(log(1, 0), offline=(only,)) == (
        "topic t: no log of partition(s) 1 can be adopted; broker 2 has partition 1 in /two, which is offline; "
        "--accept-loss lets them begin empty"
    )
    lost = planned(log(1, 0), log(2, 0), offline=(only,), wanted=AdoptionRequest("t", accepts_loss=True)).partitions[1]
    assert (lost.replicas, lost.offline, lost.is_lost) == ((3, 1), (only,), True)
    beside = OfflineReplica(2, 0, "/two")
    (kept,) = planned(log(1, 0), offline=(beside,)).partitions
    assert (kept.replicas, kept.offline, kept.is_lost) == ((1,), (beside,), False)


def test_logs_of_several_topics_are_told_apart():
    logs = (log(1, 0), log(2, 0, topic_id=TWO), log(2, 1, topic_id=TWO), log(3, 1, topic_id=None))
    assert refused(*logs) == (
        "there are logs of several topics with the name t, and --topic-id ID chooses one: "
        "1 partition(s) without an id on broker(s) 3, 7 bytes; "
        f"1 partition(s) with the id {ONE} on broker(s) 1, 7 bytes; "
        f"2 partition(s) with the id {TWO} on broker(s) 2, 14 bytes"
    )
    plan = planned(*logs, wanted=AdoptionRequest("t", topic_id=TWO))
    assert (plan.topic_id, [one.replicas for one in plan.partitions]) == (TWO, [(2,), (2,)])
    assert (
        refused(*logs, wanted=AdoptionRequest("t", topic_id="x"))
        == "no broker has a stray log of topic t with the id x"
    )


def test_a_partition_that_begins_empty_keeps_off_brokers_with_another_log_of_its_name():
    wanted = AdoptionRequest("t", topic_id=ONE, partitions=2, accepts_loss=True)
    logs = (log(1, 0), log(1, 1, topic_id=TWO), log(2, 1, topic_id=TWO))
    assert planned(*logs, wanted=wanted).partitions[1].replicas == (3,)
    assert refused(*logs, wanted=wanted, brokers=(1, 2)) == (
        "topic t: every broker has a log of partition 1 that is not adopted and in the way"
    )


def test_logs_that_have_no_id_are_adopted_where_there_are_no_others():
    assert planned(log(1, 0, topic_id=None)).topic_id is None


def report(broker, brokers=(1, 2), cluster_id="c", topic_id=None, strays=()):
    return BrokerReport(broker, cluster_id, brokers, topic_id, None, strays, ())


def test_all_live_brokers_are_asked_and_each_counts_once():
    strays = (log(1, 0),)
    reports = [report(1, strays=strays), report(2), report(1, strays=strays)]
    assert held_together("t", reports) == Held((1, 2), strays)
    with pytest.raises(AdoptionRefusedError, match=r"broker\(s\) 2,3 are alive and not among --admin"):
        held_together("t", [report(1, (1, 2, 3))])


def test_brokers_of_different_clusters_are_refused():
    with pytest.raises(AdoptionRefusedError, match="different clusters: c, d"):
        held_together("t", [report(1), report(2, cluster_id="d")])


def test_a_topic_that_exists_is_refused():
    with pytest.raises(AdoptionRefusedError, match=f"topic t exists, with the id {TWO}; logs with another id stay"):
        held_together("t", [report(1), report(2, topic_id=TWO)])
