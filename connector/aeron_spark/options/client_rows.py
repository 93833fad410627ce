"""Rows of the option table that only a client of the secure endpoint knows."""

from __future__ import annotations

from typing import Final

from aeron_spark.options.row import CLIENT, Option, ValueType

CLIENT_ROWS: Final[tuple[Option, ...]] = (
    Option(
        "tag", ValueType.TEXT, None, "A short name of this client, at most 32 printable characters.", CLIENT, "desk-7"
    ),
    Option(
        "bind",
        ValueType.ADDRESS,
        None,
        "This side's own address: `host:port`, where `port` is the one that the server sees and the next one receives, "
        "or `host:port:receive port`.",
        CLIENT,
        "0.0.0.0:20400",
        shown_default="ports that the system chooses",
    ),
    Option(
        "ipc",
        ValueType.CHOICE,
        "auto",
        "Shared memory: `auto` tries it first where the server is on this machine, then UDP; `only` and `never` do "
        "what they say. The address `ipc:` is `only`.",
        CLIENT,
        "never",
        choices=("auto", "only", "never"),
    ),
    Option(
        "knownServers",
        ValueType.PATH,
        None,
        "File of the servers this client knows by their keys.",
        CLIENT,
        "/etc/aeron-spark/known_servers",
        shown_default="`$XDG_CONFIG_HOME/aeron-spark/known_servers`",
    ),
    Option(
        "serverKey",
        ValueType.PUBLIC_KEY,
        None,
        "The only key that the server may have; `knownServers` is not asked then.",
        CLIENT,
        "aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    ),
    Option(
        "trustFirstUse",
        ValueType.FLAG,
        "true",
        "A server that is not known yet is trusted, and remembered once the handshake has completed. `false` refuses "
        "it.",
        CLIENT,
        "false",
    ),
    Option(
        "validate",
        ValueType.FLAG,
        "true",
        "`false`: a server whose key has changed is let in, and flagged (`remote_key_changed`). What is known of it "
        "stays as it was.",
        CLIENT,
        "false",
    ),
    Option(
        "connectTimeout",
        ValueType.DURATION_OR_ZERO,
        "30s",
        "How long connecting may take in all; 0 tries until closed.",
        CLIENT,
        "5s",
    ),
    Option(
        "reconnect",
        ValueType.FLAG,
        "true",
        "Come back after the server was lost. `false`: the first loss of the way ends the connection.",
        CLIENT,
        "false",
    ),
    Option(
        "firstPause",
        ValueType.DURATION,
        "100ms",
        "Between the first two attempts; then twice as long each time.",
        CLIENT,
        "1s",
    ),
    Option("longestPause", ValueType.DURATION, "5s", "Between two attempts at most.", CLIENT, "30s"),
)
