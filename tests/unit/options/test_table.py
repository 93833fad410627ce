"""The table holds every public option, each with a default and an example that its own parser takes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import values
from aeron_spark.options.document import markdown
from aeron_spark.options.endpoint_values import identity, public_key, public_keys
from aeron_spark.options.given import OptionReader, example
from aeron_spark.options.row import CLIENT, ENDPOINT, EVERYWHERE, READING, SERVER, WRITING, Option, ValueType, Where
from aeron_spark.options.table import TABLE, rows, rows_of_endpoint
from aeron_spark.transport.endpoint_channels import client_ports, server_addresses

ROOT = Path(__file__).parents[3]

# Aeron's and Spark's users type these: they are a contract.
PUBLIC = {
    *("channel", "streamId", "archive", "aeronDir", "responseChannel", "replayChannel", "credentialsFile"),
    *("server", "stream", "identity", "serverKey", "handshake"),
    *(
        "payload",
        "startingOffsets",
        "startingTimestamp",
        "timestampFrom",
        "endingOffsets",
        "startPosition",
        "endPosition",
    ),
    *("sessionIds", "pushdown", "readPath", "maxBytesPerTrigger", "maxRowsPerTrigger", "minBytesPerTrigger"),
    *(
        "maxTriggerDelay",
        "minPartitions",
        "failOnDataLoss",
        "record",
        "includeMetadata",
        "idleTimeout",
        "connectTimeout",
    ),
    *("ack", "offerTimeout", "whenUnconnected", "maxMessageBytes", "writerId", "acceptGap"),
}

PUBLIC_AT_ENDPOINTS = {
    *("identity", "sharedSecretFile", "aeronDir", "idle", "reliable", "mtu", "termLength", "maxMessage"),
    *("expiry", "linger", "sessionTimeout", "setupTimeout", "stepTimeout", "keepAlive", "pingTimeout", "sendTimeout"),
    *("closeTimeout", "buffering", "bufferBytes", "bufferTime", "queueBytes", "maxStreams", "streamMemory"),
    *("streamMemoryTotal", "streamDiskTotal", "spillDir", "maxCalls", "maxRunning", "maxObjects", "workers"),
    *("maxTampered", "tamperedTime"),
}
PUBLIC_AT_SERVERS = PUBLIC_AT_ENDPOINTS | {
    *("bind", "ports", "ipc", "duologue", "mdcPorts", "sessionIdRange", "authorizedKeys", "allow", "deny"),
    *("maxConnections", "maxConnectionsPerAddress", "maxPending", "maxPendingPerAddress", "handshakesPerSecond"),
    *("handshakeBurst", "exemptLoopback", "maxSessions", "maxSessionsPerKey", "deciders"),
    *("maxBranches", "streamsDir", "stageBytes"),
}
PUBLIC_AT_CLIENTS = PUBLIC_AT_ENDPOINTS | {
    *("tag", "bind", "ipc", "knownServers", "serverKey", "trustFirstUse", "validate", "connectTimeout", "reconnect"),
    *("firstPause", "longestPause"),
}


def test_the_public_names_are_all_there_and_no_others() -> None:
    assert {option.name for option in TABLE if option.where & EVERYWHERE} == PUBLIC
    assert {option.name for option in TABLE if Where.SERVER in option.where} == PUBLIC_AT_SERVERS
    assert {option.name for option in TABLE if Where.CLIENT in option.where} == PUBLIC_AT_CLIENTS


def test_a_name_stands_once_in_each_place() -> None:
    for where in Where:
        names = [option.name.lower() for option in TABLE if where in option.where]
        assert len(names) == len(set(names)), where


def test_rows_are_found_whatever_the_case() -> None:
    assert [option.where for option in rows("PAYLOAD")] == [READING, WRITING]
    assert rows("nothing") == ()


def test_no_option_is_both_sparks_and_an_endpoints() -> None:
    """One row would have one meaning and one default for two kinds of users."""
    assert all(option.where <= EVERYWHERE or option.where <= ENDPOINT for option in TABLE)


def test_an_endpoints_option_has_three_spellings_and_no_others() -> None:
    (option,) = rows("maxConnectionsPerAddress")
    assert (option.flag, option.argument) == ("--max-connections-per-address", "max_connections_per_address")
    for name in ("maxConnectionsPerAddress", "max_connections_per_address", "max-connections-per-address"):
        assert rows_of_endpoint(name) == (option,)
    assert rows_of_endpoint("max_connectionsperaddress") == ()
    assert rows_of_endpoint("startingOffsets") == ()


def read(given: OptionReader, option: Option) -> object:
    readers = {
        ValueType.TEXT: given.text,
        ValueType.PATH: given.text,
        ValueType.CHANNEL: given.channel,
        ValueType.ARCHIVES: given.archives,
        ValueType.RESPONSE: given.response,
        ValueType.WHOLE: given.whole,
        ValueType.SIZE: given.size,
        ValueType.DURATION: lambda name: given.read(name, values.duration_ns),
        ValueType.FLAG: given.flag,
        ValueType.CHOICE: given.choice,
        ValueType.OFFSETS: lambda name: given.offsets(name, "latest"),
        ValueType.MOMENT: given.moment,
        ValueType.TIMESTAMP_FROM: given.timestamp_from,
        ValueType.SESSIONS: given.sessions,
        ValueType.NUMBER: given.number,
        ValueType.DURATION_OR_ZERO: given.seconds_or_zero,
        ValueType.SPAN: given.span,
        ValueType.PORT_SPAN: given.span,
        ValueType.PORT_PAIR: given.port_pair,
        ValueType.ADDRESS: lambda name: given.read(name, client_ports),
        ValueType.ADDRESSES: lambda name: given.read(name, lambda text: server_addresses(text, (20121, 20122))),
        ValueType.NETWORKS: lambda name: given.networks(name) or None,
        ValueType.PUBLIC_KEY: lambda name: given.read(name, public_key),
        ValueType.PUBLIC_KEYS: lambda name: given.read(name, public_keys),
        ValueType.STREAM: lambda name: given.read(name, values.stream_name),
        ValueType.IDENTITY: lambda name: given.read(name, identity),
    }
    return readers[option.kind](option.name)


PLACES = [(option, where) for option in TABLE for where in Where if where in option.where]


@pytest.mark.parametrize(("option", "where"), PLACES, ids=[f"{option.name}-{where.value}" for option, where in PLACES])
def test_defaults_and_examples_are_values_of_their_kind(option: Option, where: Where) -> None:
    assert (read(OptionReader({}, where), option) is None) == (option.default_in(where) is None)
    assert read(OptionReader({option.name: option.example}, where), option) is not None
    assert option.example in example(option)
    if where in ENDPOINT:
        assert option.flag in example(option)
    assert option.meaning.endswith(".")
    assert (option.kind is ValueType.CHOICE) == bool(option.choices)


NARROW = [
    (option, where)
    for option, where in PLACES
    if option.kind not in (ValueType.TEXT, ValueType.PATH, ValueType.IDENTITY)
]


@pytest.mark.parametrize(("option", "where"), NARROW, ids=[f"{option.name}-{where.value}" for option, where in NARROW])
def test_every_option_refuses_a_wrong_value_with_an_example(option: Option, where: Where) -> None:
    with pytest.raises(OptionError) as caught:
        read(OptionReader({option.name: "?!"}, where), option)
    assert f"option '{option.name}'" in str(caught.value)
    assert caught.value.remedy


def test_the_document_is_the_one_in_the_repository() -> None:
    """Made again by ``make docs``."""
    assert (ROOT / "docs" / "options.md").read_text(encoding="utf-8") == markdown()


def test_the_document_is_printed_by_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_module("aeron_spark.options", run_name="__main__")
    assert capsys.readouterr().out == markdown()
    runpy.run_module("aeron_spark.options.__main__", run_name="imported")
    assert capsys.readouterr().out == ""


def test_the_document_has_every_option_where_it_belongs() -> None:
    shared, reading, writing, endpoint = markdown().split("\n## ")[1:]
    both, server, client = endpoint.split("\n### ")[1:]
    for option in TABLE:
        in_reading, in_writing = bool(option.where & READING), bool(option.where & WRITING)
        in_server, in_client = bool(option.where & SERVER), bool(option.where & CLIENT)
        if in_server or in_client:
            section = both if in_server and in_client else server if in_server else client
        else:
            section = shared if in_reading and in_writing else reading if in_reading else writing
        assert section.count(f"\n| `{option.name}` |") == 1
    assert "| `startingOffsets` | `latest` (stream), `earliest` (batch) |" in reading
    assert "interface=localhost" in shared
    # a bar inside a cell would begin a new one
    assert all(line.replace("\\|", "").count("|") == 5 for line in markdown().splitlines() if line.startswith("|"))
