"""`millrace brokers adopt`: makes a topic again of logs that brokers hold and the cluster does not know."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.config import MAX_INT
from millrace_ops.cli.options import ClientConfig, DryRun, Json
from millrace_ops.cli.output import confirm, print_json, print_table

if TYPE_CHECKING:
    from ssl import SSLContext

    from millrace_ops.replicas.adoption import AdminEndpoint, AdoptedPartition, AdoptionPlan

HTTPS = "https://"
COLUMNS = ("partition", "leader", "replicas", "log_start_offset", "log_end_offset", "bytes", "remarks")


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
    from millrace.config import parse_assignments
    from millrace.errors import SetupError
    from millrace_ops.replicas.adoption import AdoptionRequest, held_together, plan_adoption

    given = parse_assignments(config or ())
    endpoints = _endpoints(admin, client_config)
    reports = [one.report(topic) for one in endpoints]
    internal = reports[0].internal
    wanted = AdoptionRequest(topic, topic_id, partitions, accept_loss, 0 if internal is None else internal.partitions)
    plan = plan_adoption(wanted, held_together(topic, reports))
    if not as_json:
        print_table(COLUMNS, (_row(one) for one in plan.partitions))
    if not dry_run:
        question = f"Adopt topic {topic} with {len(plan.partitions)} partition(s)?"
        if not confirm(question, is_confirmed=yes):
            raise SetupError(f"topic {topic} is not adopted")
        plan = _carry_out(plan, given if internal is None else {**internal.config, **given}, endpoints)
    if as_json:
        print_json({**_described(plan), "dry_run": dry_run})
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


def _row(one: AdoptedPartition) -> tuple[object, ...]:
    remarks = [
        *(["begins empty"] if one.is_lost else []),
        *(f"broker {cut.broker} cuts {cut.records} from {cut.offset}" for cut in one.cuts),
        *(f"offline on broker {each.broker}" for each in one.offline),
    ]
    sizes = (one.log_start_offset, one.log_end_offset, one.bytes)
    return (one.partition, one.leader, one.replicas, *sizes, "; ".join(remarks) or None)


def _described(plan: AdoptionPlan) -> dict[str, object]:
    partitions = [
        {
            **one._asdict(),
            "cuts": [cut._asdict() for cut in one.cuts],
            "offline": [each._asdict() for each in one.offline],
        }
        for one in plan.partitions
    ]
    return {**plan._asdict(), "partitions": partitions}
