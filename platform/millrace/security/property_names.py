"""Kafka's names of those properties of security that several modules read."""

from __future__ import annotations

MECHANISM, JAAS = "sasl.mechanism", "sasl.jaas.config"
IDENTIFICATION = "ssl.endpoint.identification.algorithm"
