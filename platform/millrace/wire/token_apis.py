"""The messages about delegation tokens (KIP-48), in the versions of Apache Kafka 3.9.

`kio` lacks version 0, and can't read the -1 that stands for no time. A token is named by its secret, `hmac`. Versions 0
and 1 are the same, 2 is flexible, and 3 tells the owner apart from the requester (KIP-373).
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.declaration import DeclaredApi, Field, Structure

ERROR_CODE = Field("error_code", "error_code")
HMAC = Field("hmac", "bytes")
THROTTLE_TIME = Field("throttle_time", "int32", default=0)
PRINCIPAL = (Field("principal_type", "string"), Field("principal_name", "string"))
OWNER_AND_REQUESTER = (
    *PRINCIPAL,
    Field("token_requester_principal_type", "string", 3),
    Field("token_requester_principal_name", "string", 3),
)
TIMES = (Field("issue_timestamp", "int64"), Field("expiry_timestamp", "int64"), Field("max_timestamp", "int64"))
TOKEN = (*OWNER_AND_REQUESTER, *TIMES, Field("token_id", "string"), HMAC)
EXPIRY = (ERROR_CODE, Field("expiry_timestamp", "int64"), THROTTLE_TIME)

CREATE_REQUEST = Structure(
    "CreateDelegationTokenRequest",
    (
        Field("owner_principal_type", "string", 3, is_nullable=True),
        Field("owner_principal_name", "string", 3, is_nullable=True),
        Field("renewers", Structure("CreatableRenewers", PRINCIPAL), is_array=True),
        Field("max_lifetime_ms", "int64"),
    ),
)
DESCRIBE_REQUEST = Structure(
    "DescribeDelegationTokenRequest",
    (Field("owners", Structure("DescribeDelegationTokenOwner", PRINCIPAL), is_array=True, is_nullable=True),),
)
DESCRIBED_TOKEN = Structure(
    "DescribedDelegationToken",
    (*TOKEN, Field("renewers", Structure("DescribedDelegationTokenRenewer", PRINCIPAL), is_array=True)),
)
TOKEN_APIS: Mapping[int, DeclaredApi] = {
    ApiKey.CREATE_DELEGATION_TOKEN: DeclaredApi(
        VersionRange(0, 3),
        CREATE_REQUEST,
        Structure("CreateDelegationTokenResponse", (ERROR_CODE, *TOKEN, THROTTLE_TIME)),
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: DeclaredApi(
        VersionRange(0, 2),
        Structure("RenewDelegationTokenRequest", (HMAC, Field("renew_period_ms", "int64"))),
        Structure("RenewDelegationTokenResponse", EXPIRY),
    ),
    ApiKey.EXPIRE_DELEGATION_TOKEN: DeclaredApi(
        VersionRange(0, 2),
        Structure("ExpireDelegationTokenRequest", (HMAC, Field("expiry_time_period_ms", "int64"))),
        Structure("ExpireDelegationTokenResponse", EXPIRY),
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: DeclaredApi(
        VersionRange(0, 3),
        DESCRIBE_REQUEST,
        Structure(
            "DescribeDelegationTokenResponse",
            (ERROR_CODE, Field("tokens", DESCRIBED_TOKEN, is_array=True), THROTTLE_TIME),
        ),
    ),
}
