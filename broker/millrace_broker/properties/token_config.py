"""The properties of delegation tokens, under Kafka's names. Without a secret key there are no tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from millrace.config import ConfigTable, build, declared_keys, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenConfig:
    """The properties as fields: `delegation_token_max_lifetime_ms` is `delegation.token.max.lifetime.ms`."""

    delegation_token_secret_key: str = setting(
        "",
        "The key by which the secrets of delegation tokens are made, the same on all brokers; no tokens without one.",
        has_default=False,
        is_secret=True,
    )
    delegation_token_master_key: str = setting(
        "", "An older name of delegation.token.secret.key.", has_default=False, is_secret=True
    )
    delegation_token_max_lifetime_ms: int = setting(
        7 * 24 * 3_600_000, "Milliseconds after which a delegation token can't be renewed any more.", minimum=1
    )
    delegation_token_expiry_time_ms: int = setting(
        24 * 3_600_000, "Milliseconds after which a delegation token has to be renewed.", minimum=1
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        3_600_000, "Milliseconds between two looks for delegation tokens to remove.", minimum=1
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Parses those of the given properties that are declared here. Raises InvalidConfigError."""
        return build(
            cls, TOKEN_CONFIG.parse({name: properties[name] for name in TOKEN_CONFIG.keys & properties.keys()})
        )

    @property
    def key(self) -> str:
        """The secret key; empty where there are no tokens."""
        return self.delegation_token_secret_key or self.delegation_token_master_key


TOKEN_CONFIG = ConfigTable(declared_keys(TokenConfig))
