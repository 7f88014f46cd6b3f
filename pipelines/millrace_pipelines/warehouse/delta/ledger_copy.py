"""A second copy of a table's application transactions, in a file that other engines leave alone.

    DIR/_ledger.json    the table's id, where the file lies, a version, and the transactions of that version

The log's own `txn` actions stay the ledger: what a commit builds on is compared with them. But another engine's
checkpoint may drop them (`delta.setTransactionRetentionDuration`), and then a load would begin again at the start. So
each commit is followed by this file. It may lag: the commits after its version are read from the log. What the log has
lost is taken from here, and the next commit writes it to the log again.

The file also tells what the log can't: that the folder is a copy, or that the table was set back to a version from
before its offsets moved, for RESTORE takes rows back and leaves transactions as they are. A damaged file counts as
none, and one is made from the log where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from millrace_pipelines.warehouse.delta.commits import RESTORE, Commit, read_commit
from millrace_pipelines.warehouse.delta.log_actions import actions_of
from millrace_pipelines.warehouse.delta.snapshot import Snapshot
from millrace_pipelines.warehouse.delta.store import FileIdentity, TableFiles, checked_json, said_in
from millrace_pipelines.warehouse.errors import LedgerError

LEDGER_FILE = "_ledger.json"
SAID = "ledger"
OWN_APP_IDS = "millrace/"


class LedgerCopy(NamedTuple):
    """The second copy of a table's ledger: its transactions at one version; `identity` is where the copy's file lay."""

    table_id: str
    version: int
    transactions: Mapping[str, int]
    identity: FileIdentity

    def content(self, identity: FileIdentity) -> bytes:
        """Returns the JSON content of the copy's file; `identity`, where the file lies, is a part of it."""
        said = [self.table_id, self.version, dict(self.transactions), *identity]
        return checked_json(SAID, said, indent=1)


def read_copy(store: TableFiles) -> LedgerCopy | None:
    """Returns the ledger's second copy from a table's folder; None where it is missing or damaged."""
    match said_in(store.read(LEDGER_FILE), SAID):
        case [table_id, version, transactions, path, inode]:
            return LedgerCopy(table_id, version, transactions, FileIdentity(path, inode))
    return None


def keep_copy(table: Snapshot, store: TableFiles) -> None:
    """Writes the ledger's second copy for this version, unless it is as new; raises OSError where that fails."""
    copy = read_copy(store)
    if copy is None or copy.table_id != table.id:
        copy = LedgerCopy(table.id, table.version, _transactions_in_log(table), FileIdentity("", None))
    elif copy.version < table.version:
        copy = copy._replace(version=table.version, transactions=transactions_at(copy, table))
    else:
        return
    store.replace(LEDGER_FILE, copy.content)


def transactions_at(copy: LedgerCopy, table: Snapshot) -> dict[str, int]:
    """Returns the transactions of a copy, moved on by the commits after it up to the table's version.

    Raises:
        LedgerError: A commit between the two is gone from the log, and so is a transaction that it may have set.
    """
    moved: dict[str, int] = dict(copy.transactions)
    for version in range(copy.version + 1, table.version + 1):
        commit = read_commit(table, version)
        if commit is None:
            return _without_commits(copy, table, version)
        moved |= _own(commit.transactions)
    return moved


def check_copy(copy: LedgerCopy, table: Snapshot, store: TableFiles) -> None:
    """Checks that a table's rows and log are those for which the ledger's second copy was written.

    Raises:
        LedgerError: They are another table's, were set back or restored to an earlier version, or the folder is a copy.
    """
    path = store.path(LEDGER_FILE)
    if copy.table_id != table.id:
        raise LedgerError(f"{path} is of another table, {copy.table_id}, not of {table.id}: the table was replaced, or "
                          "the file was copied here; load into another table")  # fmt: skip
    if copy.version > table.version:
        raise LedgerError(f"{table.location} is at version {table.version}, but was at {copy.version}: its log was set "
                          "back; put back the rest of it or, where it is a backup that was made whole, remove "
                          f"{path}")  # fmt: skip
    if not copy.identity.is_same_file(store.identity(LEDGER_FILE)):
        raise LedgerError(
            f"{table.location} is a copy of {copy.identity.path}, perhaps one made while that was written to; load "
            f"into another table or, where nothing wrote to it meanwhile, remove {path}, and the copy is a table "
            "of its own"
        )
    _check_moved(copy, table)
    _check_restored(copy, table)


def _check_moved(copy: LedgerCopy, table: Snapshot) -> None:
    for app_id, version in transactions_at(copy, table).items():
        if (actual := table.transaction_in_log(app_id)) not in (version, None):
            raise LedgerError(f"{table.location}: the log says {actual} of {app_id}, where Millrace's newest commit "
                              f"set {version}; load into another table")  # fmt: skip


def _check_restored(copy: LedgerCopy, table: Snapshot) -> None:
    """Raises LedgerError where the table was restored to a version from before the newest change of its offsets."""
    commits = [commit for commit in _commits_after(copy, table) if commit is not None]
    moved = max((commit.version for commit in commits if _own(commit.transactions)), default=copy.version)
    rows_of = table.version
    for commit in reversed(commits):
        if commit.operation == RESTORE and commit.version <= rows_of:
            rows_of = -1 if commit.restored_to is None else commit.restored_to
            if rows_of < moved:
                raise LedgerError(
                    f"{table.location} was restored to {_shown(rows_of)} by the commit {commit.version}, but offsets "
                    f"were loaded up to version {moved}: its rows are older than its ledger. `RESTORE TABLE … TO "
                    f"VERSION AS OF {max(moved, commit.version - 1)}` takes that back; or load into another table"
                )


def _shown(version: int) -> str:
    return "a time" if version < 0 else f"version {version}"


def _commits_after(copy: LedgerCopy, table: Snapshot) -> Iterator[Commit | None]:
    return (read_commit(table, version) for version in range(copy.version + 1, table.version + 1))


def _without_commits(copy: LedgerCopy, table: Snapshot, gone: int) -> dict[str, int]:
    """Returns the versions that the log itself has of the copy's transactions, since the commit `gone` is lost.

    Raises LedgerError where the log has lost one of these transactions, too.
    """
    said = {app_id: table.transaction_in_log(app_id) for app_id in copy.transactions}
    if lost := [app_id for app_id, version in said.items() if version is None]:
        raise LedgerError(f"{table.location}: the log has lost {lost[0]}, and with it which offsets are loaded; the "
                          f"copy of version {copy.version} does not help, for the commit {gone} is gone from the log; "
                          "load into another table")  # fmt: skip
    return {app_id: version for app_id, version in said.items() if version is not None}


def _transactions_in_log(table: Snapshot) -> dict[str, int]:
    """Returns Millrace's transactions in the log, from its checkpoint and the commits after it."""
    said = actions_of(table, "txn", ("appId", "version"))
    return _own({str(txn["appId"]): int(txn["version"]) for txn in said})


def _own(transactions: Mapping[str, int]) -> dict[str, int]:
    return {app_id: version for app_id, version in transactions.items() if app_id.startswith(OWN_APP_IDS)}
