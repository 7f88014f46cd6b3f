"""`millrace doctor`: checks a machine, a broker's configuration and a running cluster, and says what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_ops.cli.options import FS, ClientConfig, ClusterAccess, Json
from millrace_ops.cli.output import print_rows

if TYPE_CHECKING:
    from millrace_ops.doctor.findings import DoctorFinding


def doctor(
    *,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="The broker's properties.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One property; may be repeated.")
    ] = None,
    data: Annotated[list[str] | None, typer.Option(metavar="DIR", help="A data folder; may be repeated.")] = None,
    listen: Annotated[str | None, typer.Option(metavar="[NAME://]HOST:PORT", help="Where it is to listen.")] = None,
    admin: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where its admin endpoint is to be.")] = None,
    broker_id: Annotated[int | None, typer.Option("--id", metavar="N", help="The broker's id.")] = None,
    zookeeper: Annotated[str | None, typer.Option(metavar="HOST:PORT[/CHROOT]", help="Its ZooKeeper.")] = None,
    standalone: Annotated[bool, typer.Option("--standalone", help="It is to run without ZooKeeper.")] = False,
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT[,...]", help="Brokers of a running cluster, which is asked.")
    ] = None,
    client_config: ClientConfig = None,
    problems: Annotated[bool, typer.Option("--problems", help="Leave out what is well, and advice.")] = False,
    as_json: Json = False,
) -> None:
    """Check this machine, and say what to change; exit status 1 where there is a problem.

    With the options of `millrace broker`, what that would start with is checked, too: properties, folders, addresses
    and ZooKeeper. Nothing is changed. Run it as the broker's user, on the broker's machine.
    """
    from millrace_ops.doctor.findings import Level

    given = {"--config": config, "--listen": listen, "--admin": admin, "--id": broker_id, "--zookeeper": zookeeper}
    arguments = _arguments(given, data or (), assignments or (), standalone=standalone)
    findings = list(_findings(arguments, bootstrap, client_config))
    has_problem = any(one.level is Level.PROBLEM for one in findings)
    shown = [one for one in findings if one.level is Level.PROBLEM or not problems]
    print_rows([one._asdict() for one in shown], as_json=as_json, nothing="no problem was found")
    raise typer.Exit(int(has_problem))


def _arguments(
    given: Mapping[str, object], data: Sequence[str], assignments: Sequence[str], *, standalone: bool
) -> list[str]:
    """Returns the arguments of `millrace broker`; none where only the machine is to be checked."""
    pairs = [(name, str(value)) for name, value in given.items() if value is not None]
    pairs += [("--data", one) for one in data] + [("--set", one) for one in assignments]
    return [f"{name}={value}" for name, value in pairs] + ["--standalone"] * standalone


def _findings(arguments: Sequence[str], bootstrap: str | None, client_config: str | None) -> Iterator[DoctorFinding]:
    from millrace_ops.doctor.cluster import check_cluster, read_cluster
    from millrace_ops.doctor.examine import examine_broker

    yield from examine_broker(arguments, FS)
    if bootstrap is not None:
        with ClusterAccess(bootstrap, client_config).open() as cluster:
            yield from check_cluster(read_cluster(bootstrap, cluster, FS))
