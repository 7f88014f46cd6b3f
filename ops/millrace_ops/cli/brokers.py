"""`millrace brokers`: lists and describes brokers, finds and adopts stray logs, elects leaders, drains brokers."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.config import MAX_INT, parse_assignments
from millrace.errors import BrokerError, ErrorCode, InvalidReplicaAssignmentError, SetupError, error_name
from millrace_ops.cli.commands import Commands
from millrace_ops.cli.options import (
    BrokerId,
    ClientConfig,
    ClusterAccess,
    DryRun,
    Json,
    complete_broker,
    complete_topic,
)
from millrace_ops.cli.output import confirm, print_json, print_rows, print_table, print_tables
from millrace_ops.cli.reassignment import Options, Throttle, Wait, carry_out_plan, plan_for

if TYPE_CHECKING:
    from ssl import SSLContext

    from millrace.client import Cluster
    from millrace.client.metadata import Partition
    from millrace.client.replicas import ElectionResult, LogDir
    from millrace_ops.replicas.adoption import AdminEndpoint, AdoptedPartition, AdoptionPlan
    from millrace_ops.replicas.cluster_state import ClusterState, StrayLog
    from millrace_ops.replicas.plan import Plan

app = Commands(help="List and describe brokers, elect leaders, adopt stray logs, drain a broker that is to leave.")
COLUMNS = (
    "broker", "address", "rack", "controller", "leaders", "replicas", "under_replicated", "out_of_sync", "bytes",
    "free_bytes",
)  # fmt: skip
ELECTION_COLUMNS = ("topic", "partition", "result", "leader")
POLL_INTERVAL_S = 0.05


@app.command("list")
def list_brokers(*, access: ClusterAccess, as_json: Json = False) -> None:
    """List every broker that is alive or holds replicas; one that is not alive has no address."""
    from millrace_ops.replicas.cluster_state import broker_ids, read_cluster_state, summarize_broker

    with access.open() as cluster:
        state = read_cluster_state(cluster)
        rows = [summarize_broker(state, one, _log_dirs(cluster, state, one)) for one in broker_ids(state)]
    print_rows(rows, as_json=as_json, columns=COLUMNS)


@app.command()
def describe(
    broker_id: BrokerId,
    *,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Show a broker's data directories, and the partitions that it leads and follows."""
    from millrace_ops.replicas.cluster_state import broker_ids, read_cluster_state, summarize_broker

    with access.open() as cluster:
        state = read_cluster_state(cluster)
        if broker_id not in broker_ids(state):
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive and has no replicas")
        log_dirs = _log_dirs(cluster, state, broker_id)
    summary = summarize_broker(state, broker_id, log_dirs)
    directories = [_directory(one) for one in log_dirs or ()]
    partitions = _partitions(state, broker_id, log_dirs or ())
    if as_json:
        print_json({**summary, "directories": directories, "partitions": partitions})
    else:
        print_tables([summary], directories, partitions)


HTTPS = "https://"
ADOPTION_COLUMNS = ("partition", "leader", "replicas", "log_start_offset", "log_end_offset", "bytes", "remarks")


@app.command()
def adopt(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    *,
    admin: Annotated[
        str,
        typer.Option(
            metavar="[https://]HOST:PORT[,...]",
            envvar="MILLRACE_ADMIN_URL",
            help="The admin endpoints of all live brokers.",
        ),
    ],
    topic_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The topic's id, where there are logs of several ids.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_INT, help="How many partitions it had; by default up to the last that has a log."),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A property of the topic; repeatable.")
    ] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Let partitions begin empty of which no log can be adopted.")
    ] = False,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Make a topic again of its stray logs, which the cluster does not know.

    Its id, records and offsets are those of the logs; the longest log of each partition leads, and others follow it.
    """
    from millrace_ops.replicas.adoption import AdoptionRequest, held_together, plan_adoption

    given = parse_assignments(config or ())
    endpoints = _endpoints(admin, client_config)
    reports = [one.report(topic) for one in endpoints]
    internal = reports[0].internal
    wanted = AdoptionRequest(topic, topic_id, partitions, accept_loss, 0 if internal is None else internal.partitions)
    plan = plan_adoption(wanted, held_together(topic, reports))
    if not as_json:
        print_table(ADOPTION_COLUMNS, (_adoption_row(one) for one in plan.partitions))
    if not dry_run:
        question = f"Adopt topic {topic} with {len(plan.partitions)} partition(s)?"
        if not confirm(question, is_confirmed=yes):
            raise SetupError(f"topic {topic} is not adopted")
        plan = _carry_out(plan, given if internal is None else {**internal.config, **given}, endpoints)
    if as_json:
        print_json({**_adoption(plan), "dry_run": dry_run})
    elif not dry_run:
        print(f"topic {topic} is adopted with the id {plan.topic_id}")


def _endpoints(admin: str, client_config: str | None) -> list[AdminEndpoint]:
    """Returns the admin endpoints of brokers, given as `HOST:PORT` or as URLs, with commas between."""
    from millrace.addresses import parse_addresses
    from millrace.security.client_config import admin_token
    from millrace_ops.replicas.adoption import AdminEndpoint

    urls = [one.strip().rstrip("/") for one in admin.split(",") if one.strip()]
    addresses = parse_addresses(",".join(one.removeprefix("http://").removeprefix(HTTPS) for one in urls))
    token = admin_token(os.environ)
    context = _context(client_config) if any(one.startswith(HTTPS) for one in urls) else None
    with_tls = {address: url.startswith(HTTPS) for address, url in zip(addresses, urls, strict=True)}
    return [AdminEndpoint(address, token, context if has_tls else None) for address, has_tls in with_tls.items()]


def _context(client_config: str | None) -> SSLContext:
    """Returns the TLS context for admin endpoints: that of `client_config`, else one of the system's authorities."""
    import ssl

    from millrace.security.client_config import read_client_security

    return read_client_security(client_config).context or ssl.create_default_context()


def _carry_out(plan: AdoptionPlan, config: dict[str, str], endpoints: Sequence[AdminEndpoint]) -> AdoptionPlan:
    """Has all brokers skip used producer ids, and then one of them add the topic; returns the plan with the topic's id.

    If this is interrupted before the last step, only producer ids are spent, and the command can be run again.
    """
    from uuid import uuid4

    from millrace.uuids import encode_id

    plan = plan._replace(topic_id=plan.topic_id or encode_id(uuid4()))
    for one in endpoints[1:]:
        one.skip_producer_ids(plan.first_free_producer_id)
    endpoints[0].adopt(
        {
            "topic": plan.topic,
            "topic_id": plan.topic_id,
            "first_free_producer_id": plan.first_free_producer_id,
            "config": config,
            "partitions": [
                {"leader": one.leader, "leader_epoch": plan.leader_epoch, "replicas": one.replicas}
                for one in plan.partitions
            ],
        }
    )
    return plan


def _adoption_row(one: AdoptedPartition) -> tuple[object, ...]:
    remarks = [
        *(["begins empty"] if one.is_lost else []),
        *(f"broker {cut.broker} cuts {cut.records} from {cut.offset}" for cut in one.cuts),
        *(f"offline on broker {each.broker}" for each in one.offline),
    ]
    sizes = (one.log_start_offset, one.log_end_offset, one.bytes)
    return (one.partition, one.leader, one.replicas, *sizes, "; ".join(remarks) or None)


def _adoption(plan: AdoptionPlan) -> dict[str, object]:
    partitions = [
        {
            **one._asdict(),
            "cuts": [cut._asdict() for cut in one.cuts],
            "offline": [each._asdict() for each in one.offline],
        }
        for one in plan.partitions
    ]
    return {**plan._asdict(), "partitions": partitions}


@app.command()
def elect(
    *,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="A topic; repeatable.", autocompletion=complete_topic),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All topics; shows those that needed an election.")] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Elect the live replica with the longest log for partitions without a leader; "
            "records that it lacks are lost. What that costs is told first.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --unclean: do not ask.")] = False,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Let the first replica of each partition lead it, if it is in sync."""
    from millrace.client.replicas import ElectionType, elect_leaders
    from millrace_ops.replicas.cluster_state import read_cluster_state

    if bool(topics) == everything:
        raise typer.BadParameter("one of the two is needed", param_hint="--topic / --all")
    with access.open() as cluster:
        state = read_cluster_state(cluster, None if everything else list(dict.fromkeys(topics or ())))
        chosen = None if everything else state.partitions
        if unclean:
            _confirm_unclean(cluster, state, is_confirmed=yes)
        results = elect_leaders(cluster, ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED, chosen)
        leaders = _leaders(cluster, results, unclean=unclean)
    rows = [_election_row(one, leaders.get(one.partition)) for one in results]
    print_rows(rows, as_json=as_json, columns=ELECTION_COLUMNS, nothing="no partition needed an election")
    _say_failures(results)


def _confirm_unclean(cluster: Cluster, state: ClusterState, *, is_confirmed: bool) -> None:
    """Says what unclean elections lose, and asks whether to make them; raises SetupError for a no."""
    from millrace_ops.replicas.unclean_elections import plan_unclean, told

    elections = plan_unclean(cluster, state, state.partitions)
    for sentence in told(elections):
        print(sentence, file=sys.stderr)
    question = f"Elect leaders that may lack committed records, for {len(elections)} partition(s)?"
    if elections and not confirm(question, is_confirmed=is_confirmed):
        raise SetupError("no leader is elected")


@app.command()
def drain(
    broker_id: BrokerId,
    *,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    wait: Wait = True,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """Move all replicas and leaders away from a broker, so that it can be stopped for good.

    Other replicas stay where they are. If the command is interrupted, the cluster goes on, and the same command watches
    it again. `topics reassign --all --cancel` cancels it.
    """
    options = Options(dry_run, throttle, wait, as_json)
    with access.open() as cluster:
        plan = _plan(cluster, broker_id)
        carry_out_plan(cluster, plan, options)
        while options.is_awaited and (plan := _plan(cluster, broker_id)).moves:  # of topics created in the meantime
            carry_out_plan(cluster, plan, options)
    if options.is_awaited and not as_json:
        print(f"broker {broker_id} holds no replica and leads no partition; it can be stopped for good")
        print("should it stay, or come back: `millrace topics reassign --all` gives it its share again")


@app.command()
def strays(
    broker_id: Annotated[
        int | None,
        typer.Argument(metavar="ID", min=0, help="A broker's id; all live brokers.", autocompletion=complete_broker),
    ] = None,
    *,
    access: ClusterAccess,
    as_json: Json = False,
) -> None:
    """List the logs on live brokers that the cluster does not assign to them; they only take room.

    A broker that was drained while it was dead has such logs when it comes back. To delete one, stop the broker and
    remove the log's folder.
    """
    with access.open() as cluster:
        live = sorted(cluster.metadata([]).brokers)
        if broker_id is not None and broker_id not in live:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive")
        found = [stray for one in live if broker_id in (None, one) for stray in _strays(cluster, one)]
    print_rows([one._asdict() for one in found], as_json=as_json, nothing="no log is stray")


def _log_dirs(cluster: Cluster, state: ClusterState, broker_id: int) -> list[LogDir] | None:
    """Returns a broker's data directories; None if the broker is not alive or the request fails."""
    from millrace_ops.replicas.cluster_state import read_log_dirs

    return read_log_dirs(cluster, broker_id) if broker_id in state.metadata.brokers else None


def _directory(log_dir: LogDir) -> dict[str, object]:
    return {
        "directory": log_dir.path,
        "error": error_name(log_dir.error_code) if log_dir.error_code else None,
        "replicas": len(log_dir.replicas),
        "bytes": sum(log_dir.replicas.values()),
        "volume_bytes": log_dir.total_bytes,
        "free_bytes": log_dir.usable_bytes,
    }


def _partitions(state: ClusterState, broker_id: int, log_dirs: Iterable[LogDir]) -> list[dict[str, object]]:
    from millrace.client.replicas import replica_bytes
    from millrace_ops.replicas.cluster_state import held_replicas

    sizes = replica_bytes(log_dirs)
    return [
        {
            "topic": partition[0],
            "partition": partition[1],
            "role": "leader" if one.leader == broker_id else "follower",
            "in_sync": broker_id in one.isr,
            "leader": one.leader,
            "replicas": list(one.replicas),
            "bytes": sizes.get(partition),
        }
        for partition, one in held_replicas(state, broker_id).items()
    ]


def _leaders(cluster: Cluster, results: Sequence[ElectionResult], *, unclean: bool) -> dict[Partition, int]:
    """Returns the partitions' leaders once the brokers know the new ones, a little later than the controller does."""
    from millrace_ops.replicas.cluster_state import has_leader, read_cluster_state

    topics = sorted({one.partition[0] for one in results})
    elected = [one.partition for one in results if one.is_elected]
    deadline = time.monotonic() + cluster.timeout_s
    while topics:
        partitions = read_cluster_state(cluster, topics).partitions
        new = [partitions[one] for one in elected]
        is_told = all(has_leader(one) and (unclean or one.leader == one.replicas[0]) for one in new)
        if is_told or time.monotonic() > deadline:
            return {one: partition.leader for one, partition in partitions.items()}
        time.sleep(POLL_INTERVAL_S)
    return {}


def _election_row(result: ElectionResult, leader: int | None) -> dict[str, object]:
    topic, index = result.partition
    outcome = "elected" if result.is_elected else "not needed" if result.is_unneeded else "failed"
    return {"topic": topic, "partition": index, "result": outcome, "leader": leader}


def _say_failures(results: Sequence[ElectionResult]) -> None:
    failed = [one for one in results if not (one.is_elected or one.is_unneeded)]
    sys.stdout.flush()
    for one in failed:
        print(f"millrace: {one.partition[0]}-{one.partition[1]}: {one.problem}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _plan(cluster: Cluster, broker_id: int) -> Plan:
    """Returns the plan that leaves the broker without replicas, including moves that are already under way.

    Raises:
        BrokerError: There is no such broker.
        InvalidReplicaAssignmentError: Too few brokers remain.
    """
    from millrace_ops.replicas.cluster_state import broker_ids, read_cluster_state

    state = read_cluster_state(cluster)
    known = broker_ids(state)
    if broker_id not in known:
        raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive and has no replicas")
    if not state.racks.keys() - {broker_id}:
        raise InvalidReplicaAssignmentError(
            f"broker {broker_id} is the only one that is alive; there is no other to take what it has"
        )
    return plan_for(cluster, state, _targets(state, broker_id, known))


def _targets(state: ClusterState, broker_id: int, known: list[int]) -> dict[Partition, tuple[int, ...]]:
    from millrace_ops.replicas.placement import place, too_many_replicas, with_leaders_spread

    current = {partition: state.assigned(partition) for partition in state.partitions}
    staying = {one: state.racks.get(one) for one in known if one != broker_id}
    live = state.racks.keys() - {broker_id}
    if too_many := too_many_replicas(current, staying, live):
        raise InvalidReplicaAssignmentError(_why_it_stays(broker_id, sorted(live), too_many))
    concerned = {
        partition
        for partition, one in state.partitions.items()
        if broker_id in one.replicas or broker_id in current[partition]
    }
    placed = place(current, staying, receivers=live, level=False)
    spread = with_leaders_spread(placed, staying, {one for one in concerned if broker_id in current[one]})
    return {partition: spread[partition] for partition in state.partitions if partition in concerned}


def _why_it_stays(broker_id: int, live: list[int], too_many: Mapping[str, int]) -> str:
    """Says which topics need a broker, and what makes it possible that it leaves."""
    by_most: dict[int, list[str]] = {}
    for topic, most in too_many.items():
        by_most.setdefault(most, []).append(topic)
    commands = [
        f"millrace topics reassign {' '.join(topics)} --replication-factor {most}" for most, topics in by_most.items()
    ]
    left = f"only broker{'s' if len(live) > 1 else ''} {', '.join(map(str, live))} would be left"
    return (
        f"broker {broker_id} can't leave: {len(too_many)} topic(s) have more replicas than that allows, as {left}: "
        f"{', '.join(too_many)}. Start another broker, or let them have fewer replicas:\n" + "\n".join(commands)
    )


def _strays(cluster: Cluster, broker_id: int) -> list[StrayLog]:
    from millrace.client.replicas import describe_log_dirs
    from millrace_ops.replicas.cluster_state import find_strays

    log_dirs = describe_log_dirs(cluster, broker_id)
    return find_strays(broker_id, log_dirs, cluster.metadata(None))
