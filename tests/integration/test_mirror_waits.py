"""A mirror whose group does not come together says so, and goes on once it does."""

import threading
from uuid import uuid4

from millrace import Producer
from millrace.client import Admin, Cluster
from millrace.client.group_member import GroupMember
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.mirror import instance
from millrace_pipelines.mirror.service import MirrorService
from millrace_pipelines.mirror.sharing import OBSERVER, PROTOCOL, PROTOCOL_TYPE, assign, group_of
from millrace_support.mirrored_records import read
from millrace_support.running_mirrors import QUICK, Roles
from millrace_support.waiting import until


def test_a_group_that_gives_no_share_is_told(tmp_path, monkeypatch):
    """The group's leader is a member that hangs while it assigns, as a coordinator may that has lost its way."""
    monkeypatch.setattr(instance, "SHARE_PATIENCE_S", 0.0)
    goes_on, told = threading.Event(), []

    def slow(metadata):
        assert goes_on.wait(120)
        return assign(metadata)

    with (
        BrokerProcess(tmp_path / "source", properties=QUICK) as source,
        BrokerProcess(tmp_path / "target", properties=QUICK) as target,
        Cluster(source.bootstrap) as at_source,
        Cluster(target.bootstrap) as at_target,
    ):
        roles = Roles("east", source.bootstrap, target.bootstrap, f"t{uuid4().hex[:8]}")
        Admin(at_source).create_topic(roles.topics, 1)
        with Producer(broker_list=source.bootstrap) as producer:
            producer.send(roles.topics, b"one")
        about = {"protocol_type": PROTOCOL_TYPE, "protocol": PROTOCOL, "metadata": OBSERVER, "assign": slow}
        with (
            GroupMember(at_target, group_of("east"), **about) as leader,
            MirrorService(roles.settings(), tell=told.append) as service,
        ):
            until(lambda: leader.is_leader)
            mirroring = threading.Thread(target=service.run)
            mirroring.start()
            try:
                until(lambda: [one for one in told if "no share of the partitions comes from its coordinator" in one])
                goes_on.set()
                leader.close()
                until(lambda: f"group {group_of('east')}: it works again" in told)
                until(service.ends)
                until(lambda: read(target.bootstrap, f"east.{roles.topics}", 0))
            finally:
                goes_on.set()
                service.stop()
                mirroring.join()
