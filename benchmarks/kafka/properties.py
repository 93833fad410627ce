"""The configuration of a Kafka broker that is its own controller (KRaft), with a plain and a mutual-TLS listener."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.kafka.settings import TLS_CIPHER, TLS_PROTOCOL

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a broker's listeners."""

    plain: int
    tls: int
    controller: int


def broker_properties(data: Path, ports: Ports, key_store: Path, trust_store: Path) -> str:
    """Return a ``server.properties`` file. Both stores are PEM files."""
    listeners = {"PLAINTEXT": ports.plain, "SSL": ports.tls, "CONTROLLER": ports.controller}
    properties = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
        "advertised.listeners": f"PLAINTEXT://{HOST}:{ports.plain},SSL://{HOST}:{ports.tls}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        # one broker holds every replica
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "log.segment.delete.delay.ms": 1000,  # a deleted topic gives its space back before the next one is written
        "ssl.client.auth": "required",
        "ssl.enabled.protocols": TLS_PROTOCOL,
        "ssl.cipher.suites": TLS_CIPHER,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trust_store,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())
