"""Who may not do what, and why: the branch `SecurityError` of the tree in `millrace.errors`.

None of these is worth a retry, except a throttled request. No message has a secret in it, and that of a failed
authentication does not tell an unknown user from a wrong password.
"""

from __future__ import annotations

from millrace.error_codes import ErrorCode
from millrace.root_error import MillraceError


class SecurityError(MillraceError):
    """Something is not allowed, or can't be proven."""


class TlsError(SecurityError):
    """A certificate, a key or a handshake that can't be used; the message names the file or the peer."""

    code = ErrorCode.NETWORK_EXCEPTION


class SaslAuthenticationError(SecurityError):
    """Credentials that don't prove who somebody is."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnsupportedSaslMechanismError(SecurityError):
    """A mechanism that the listener does not offer."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class IllegalSaslStateError(SecurityError):
    """A request that does not come next in an authentication."""

    code = ErrorCode.ILLEGAL_SASL_STATE


class AuthorizationError(SecurityError):
    """Somebody who is known may not do what was asked."""


class TopicAuthorizationError(AuthorizationError):
    """Somebody who is known has no right to do on this topic what was asked."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationError(AuthorizationError):
    """Somebody who is known has no right to do on this group what was asked."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationError(AuthorizationError):
    """Somebody who is known has no right to do on the cluster what was asked."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TransactionalIdAuthorizationError(AuthorizationError):
    """Somebody who is known has no right to do on this transactional id what was asked."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class DelegationTokenAuthorizationError(AuthorizationError):
    """Somebody who is known has no right to do on this delegation token what was asked."""

    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class DelegationTokenError(SecurityError):
    """A delegation token that can't be made, changed, seen or used."""


class DelegationTokensDisabledError(DelegationTokenError):
    """The broker has no key for delegation tokens."""

    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class DelegationTokenNotFoundError(DelegationTokenError):
    """No token has this secret."""

    code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class DelegationTokenOwnerMismatchError(DelegationTokenError):
    """Neither the owner nor a renewer of the token asks."""

    code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


class DelegationTokenRequestNotAllowedError(DelegationTokenError):
    """A client that has not authenticated, or only by a token, asks for a token."""

    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class DelegationTokenExpiredError(DelegationTokenError):
    """The token's time is over."""

    code = ErrorCode.DELEGATION_TOKEN_EXPIRED


class InvalidPrincipalTypeError(SecurityError):
    """A principal that is no user where only users may be."""

    code = ErrorCode.INVALID_PRINCIPAL_TYPE


class SecurityDisabledError(SecurityError):
    """Access control that the broker is not set up for."""

    code = ErrorCode.SECURITY_DISABLED


class UnacceptableCredentialError(SecurityError):
    """A credential that is too weak, or incomplete, to be stored."""

    code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class ResourceNotFoundError(SecurityError):
    """A user, a credential or an entity that there is not."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class DuplicateResourceError(SecurityError):
    """One user or entity twice in a request."""

    code = ErrorCode.DUPLICATE_RESOURCE


class ThrottlingQuotaExceededError(SecurityError):
    """A change that a quota of changes forbids now."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    retriable = True
