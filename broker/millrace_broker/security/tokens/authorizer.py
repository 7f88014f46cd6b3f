"""Who may deal with the delegation tokens of others, as an authorizer says."""

from __future__ import annotations

from typing import Protocol

from millrace_broker.security.client_session import ClientSession, Principal
from millrace_broker.security.tokens.token import DelegationToken


class TokenAuthorizer(Protocol):
    """Answers for the operations on tokens; one's own tokens are never asked about."""

    def may_create_for(self, session: ClientSession, owner: Principal) -> bool:
        """Returns whether CREATE_TOKENS is allowed on the user who shall own the token."""
        ...

    def may_describe(self, session: ClientSession, token: DelegationToken) -> bool:
        """Returns whether DESCRIBE is allowed on the token, or DESCRIBE_TOKENS on its owner."""
        ...
