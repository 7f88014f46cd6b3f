"""The names of stores' options, by the schemes of addresses: those that obstore and delta-rs know, in small letters.

HDFS has Hadoop's settings, which are told by a dot. Names that are not known are refused before anything is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain

from millrace.suggestions import did_you_mean

CLIENT = frozenset(
    {"allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "pool_idle_timeout", "proxy_url",
     "http1_only", "http2_only", "user_agent"}
)  # fmt: skip
"""Options of the HTTP client, which the stores of clouds have."""

NAMES: Mapping[str, frozenset[str]] = {
    "s3": frozenset(
        {"aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_token", "aws_region",
         "aws_default_region", "aws_endpoint", "aws_endpoint_url", "aws_metadata_endpoint", "aws_imdsv1_fallback",
         "aws_role_arn", "aws_role_session_name", "aws_web_identity_token_file",
         "aws_container_credentials_relative_uri", "aws_container_credentials_full_uri",
         "aws_container_authorization_token_file", "aws_virtual_hosted_style_request", "aws_skip_signature",
         "aws_unsigned_payload", "aws_checksum_algorithm", "aws_request_payer", "aws_disable_tagging",
         "aws_disable_bulk_delete", "aws_s3_express", "aws_server_side_encryption", "aws_sse_kms_key_id",
         "aws_sse_bucket_key_enabled", "aws_sse_customer_key_base64", "aws_conditional_put",
         "aws_copy_if_not_exists"}
    ) | CLIENT,
    "gs": frozenset(
        {"google_service_account", "google_service_account_path", "google_service_account_key",
         "google_application_credentials", "google_bearer_token", "google_base_url", "google_skip_signature"}
    ) | CLIENT,
    "abfss": frozenset(
        {"azure_storage_account_name", "azure_storage_account_key", "azure_storage_access_key",
         "azure_storage_master_key", "azure_storage_sas_key", "azure_storage_sas_token", "azure_storage_token",
         "azure_storage_endpoint", "azure_endpoint", "azure_storage_client_id", "azure_storage_client_secret",
         "azure_storage_tenant_id", "azure_storage_authority_id", "azure_storage_authority_host",
         "azure_storage_use_emulator", "azure_client_id", "azure_client_secret", "azure_tenant_id",
         "azure_authority_id", "azure_authority_host", "azure_federated_token_file", "azure_msi_endpoint",
         "azure_identity_endpoint", "azure_object_id", "azure_msi_resource_id", "azure_use_azure_cli",
         "azure_credential_type", "azure_skip_signature", "azure_disable_tagging",
         "azure_fabric_token_service_url", "azure_fabric_workload_host", "azure_fabric_session_token",
         "azure_fabric_cluster_identifier"}
    ) | CLIENT,
    "hdfs": frozenset(),
}  # fmt: skip
EVERY = frozenset(chain.from_iterable(NAMES.values()))
LOCK_NAMES = frozenset({"aws_s3_locking_provider", "delta_dynamo_table_name", "aws_endpoint_url_dynamodb"})
NO_LOCK = (
    "a lock in DynamoDB can't be taken: delta-rs, which makes the commits, has none any more; let all writers commit "
    "by conditional writes"
)
SECRET = re.compile(r"secret|password|sas_|bearer|token$|(account|access|master|encryption)_key$|customer_key")
SEPARATOR = "://"


def option_name(key: str) -> str:
    """Returns an option's name in small letters, but for one with a dot, which is a setting of Hadoop."""
    return key if "." in key else key.lower()


def is_secret(name: str) -> bool:
    """Returns whether an option's value is a secret."""
    return SECRET.search(name) is not None


def name_faults(prefix: str, names: Iterable[str]) -> list[str]:
    """Returns a sentence for each option that the stores of a prefix don't have, or one for a prefix of no store."""
    scheme = prefix.partition(SEPARATOR)[0]
    if prefix and (scheme not in NAMES or SEPARATOR not in prefix):
        near = did_you_mean(scheme + SEPARATOR, [one + SEPARATOR for one in NAMES])
        return [f"{prefix}: no address of a store begins so{near}"]
    known = NAMES[scheme] if prefix else EVERY
    is_hadoop = scheme == "hdfs" or not prefix
    where = f"{prefix}: " if prefix else ""
    return [
        f"{where}{name}: {NO_LOCK}"
        if name in LOCK_NAMES
        else f"{where}there is no option {name} of a store{did_you_mean(name, known)}"
        for name in map(option_name, names)
        if name not in known and not (is_hadoop and "." in name)
    ]
