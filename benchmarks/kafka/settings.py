"""The settings of Spark's Kafka source and sink: by default, and tuned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KIB, MIB = 1 << 10, 1 << 20

DEFAULT: Final[Mapping[str, str]] = {}
TUNED_READING: Final[Mapping[str, str]] = {
    "kafka.max.poll.records": "20000",
    "kafka.fetch.max.bytes": str(64 * MIB),
    "kafka.max.partition.fetch.bytes": str(16 * MIB),
    "kafka.check.crcs": "false",
    "kafka.receive.buffer.bytes": str(4 * MIB),
}
_TUNED_BATCHES: Final[Mapping[str, str]] = {"kafka.batch.size": str(256 * KIB), "kafka.linger.ms": "5"}
TUNED_WRITING: Final[Mapping[str, str]] = {
    **_TUNED_BATCHES,
    "kafka.acks": "1",
    "kafka.enable.idempotence": "false",  # it needs acks=all
}
EXACTLY_ONCE_WRITING: Final[Mapping[str, str]] = {
    **_TUNED_BATCHES,
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
}
TLS_PROTOCOL: Final = "TLSv1.3"
TLS_CIPHER: Final = "TLS_AES_256_GCM_SHA384"  # the cipher of the connector's connections is AES-256-GCM, too


def tls_options(key_store: str, trust_store: str) -> dict[str, str]:
    """Return the options of Spark's source and sink for the listener with mutual TLS; both stores are PEM files."""
    return {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": key_store,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": trust_store,
        "kafka.ssl.enabled.protocols": TLS_PROTOCOL,
        "kafka.ssl.cipher.suites": TLS_CIPHER,
    }


def settings_text(options: Mapping[str, str]) -> str:
    """Return the settings as a report shows them; paths, which are temporary, are left out."""
    shown = {name.removeprefix("kafka."): value for name, value in options.items() if not name.endswith(".location")}
    return ", ".join(f"{name}={value}" for name, value in shown.items()) or "defaults"
