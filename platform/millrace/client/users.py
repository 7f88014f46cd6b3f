"""Users who log in by SCRAM, described and altered (KIP-554). Passwords don't leave this process, only their hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.security.sasl.scram import SCRAM_HASHES, SCRAM_NUMBERS, SCRAM_TYPES, new_salt, salted_password
from millrace.wire.messages import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS

if TYPE_CHECKING:
    from millrace.wire.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequestFields,
        ScramCredentialDeletionFields,
        ScramCredentialUpsertionFields,
    )
    from millrace.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequestFields


class Users:
    """The users of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> dict[str, dict[str, int]]:
        """Returns, by user, the iterations of each mechanism by which the user can log in. Raises BrokerError."""
        fields: DescribeUserScramCredentialsRequestFields = {"users": None}

        def action(connection: Connection) -> dict[str, dict[str, int]]:
            answer = connection.request(DESCRIBE_USER_SCRAM_CREDENTIALS, fields)
            check(answer.error_code, "users", answer.error_message)
            for one in answer.results:
                check(one.error_code, f"user {one.user}", one.error_message)
            return {
                one.user: {SCRAM_TYPES[info.mechanism]: info.iterations for info in one.credential_infos}
                for one in answer.results
            }

        return self._cluster.on_controller(action)

    def set_password(self, user: str, mechanisms: Sequence[str], password: str, iterations: int) -> None:
        """Gives a user a password for these mechanisms; others stay as they are. Raises BrokerError."""
        upsertions: list[ScramCredentialUpsertionFields] = []
        for mechanism in mechanisms:
            salt = new_salt()
            upsertions.append(
                {
                    "name": user,
                    "mechanism": SCRAM_NUMBERS[mechanism],
                    "iterations": iterations,
                    "salt": salt,
                    "salted_password": salted_password(SCRAM_HASHES[mechanism], password, salt, iterations),
                }
            )
        self._alter(user, {"deletions": (), "upsertions": upsertions})

    def delete(self, user: str, mechanisms: Sequence[str]) -> None:
        """Removes credentials of a user. Raises BrokerError where one of them is not there; then all stay."""
        deletions: list[ScramCredentialDeletionFields] = [
            {"name": user, "mechanism": SCRAM_NUMBERS[one]} for one in mechanisms
        ]
        self._alter(user, {"deletions": deletions, "upsertions": ()})

    def _alter(self, user: str, fields: AlterUserScramCredentialsRequestFields) -> None:
        def action(connection: Connection) -> None:
            [result] = connection.request(ALTER_USER_SCRAM_CREDENTIALS, fields).results
            check(result.error_code, f"user {user}", result.error_message)

        self._cluster.on_controller(action)
