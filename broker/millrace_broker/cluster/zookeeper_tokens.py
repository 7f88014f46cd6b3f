"""Keeps delegation tokens in ZooKeeper, in Kafka's nodes, and reads them again when they change.

A token is watched by its own node, so what somebody else writes is seen with or without a notification; Kafka's brokers
need the notification, which is written after the token. A crash between the two leaves a token that brokers of Apache
Kafka see only after their next start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from millrace.errors import ZooKeeperError
from millrace.zk import paths
from millrace.zk.operations import Create, Delete
from millrace.zk.session import ZooKeeperSession
from millrace_broker.cluster.zookeeper_notifications import remove_old_notifications
from millrace_broker.security.tokens import DelegationToken, decode_token, encode_token

logger = logging.getLogger(__name__)


class ZooKeeperTokens:
    """Reads and writes all tokens; for one thread at a time."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def start(self) -> None:
        """Makes the nodes that tokens and their notifications lie below."""
        for path in paths.DELEGATION_TOKEN_NODES:
            self._session.ensure(path)

    def read(self) -> dict[str, DelegationToken]:
        """Returns the tokens by id, and watches them; one that can't be read is logged and left out."""
        ids = sorted(self._session.children(paths.DELEGATION_TOKENS, watch=True))
        nodes = self._session.get_many([paths.delegation_token(one) for one in ids], watch=True)
        return dict(_readable(dict(zip(ids, nodes, strict=True))))

    def put(self, token: DelegationToken) -> None:
        """Writes a token, and tells the other brokers."""
        self._session.put(paths.delegation_token(token.token_id), encode_token(token))
        self._notify(token.token_id)

    def remove(self, token_id: str) -> None:
        """Removes a token, if it is there, and tells the other brokers."""
        self._session.transact([Delete(paths.delegation_token(token_id))])
        self._notify(token_id)

    def _notify(self, token_id: str) -> None:
        self._session.multi([Create(paths.token_change(), token_id.encode(), sequential=True)])
        remove_old_notifications(self._session, paths.TOKEN_CHANGES)


def _readable(nodes: Mapping[str, bytes | None]) -> list[tuple[str, DelegationToken]]:
    tokens = []
    for token_id, data in nodes.items():
        if data is not None:
            try:
                tokens.append((token_id, decode_token(data)))
            except ZooKeeperError:
                logger.exception("%s can't be read and is left out", paths.delegation_token(token_id))
    return tokens
