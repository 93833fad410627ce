"""Every public option is declared, and its parser accepts its default and its example."""

from __future__ import annotations

import runpy

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import ClientOptions, ServerOptions
from aeron_spark.options.declaration import (
    CLIENT,
    ENDPOINT,
    EVERYWHERE,
    READING,
    SERVER,
    WRITING,
    Option,
    OptionReader,
    Where,
    all_options,
    example,
    options_named,
)
from aeron_spark.options.endpoint_options import flags_of
from aeron_spark.options.routes import DirectRoute, ServerRoute
from aeron_spark.protocol.ids import FIRST_SESSION_ID, LAST_SESSION_ID
from aeron_spark.protocol.tickets import MAX_SESSIONS
from tests.jvm_options import format_of
from tests.programs import ROOT
from tools.options_page import options_page

# Users write these names: they are a contract.
PUBLIC = {
    *("channel", "streamId", "archive", "aeronDir", "responseChannel", "replayChannel", "credentialsFile"),
    *("server", "stream", "identity", "serverKey", "handshake"),
    *("cluster", "clusterUncommitted", "clusterEvents"),
    *(
        "sbeSchema",
        "sbeMessage",
        "sbeOthers",
        "sbeMode",
        "sbeFraming",
        "sbeDecimals",
        "sbeTimes",
        "sbeEnums",
        "sbeSets",
        "sbeTable",
        "payload",
        "startingOffsets",
        "startingTimestamp",
        "timestampFrom",
        "endingOffsets",
        "endingTimestamp",
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
        "archiveTimeout",
    ),
    *("ack", "offerTimeout", "whenUnconnected", "maxMessageBytes", "writerId", "acceptGap", "evolveSchema"),
}

PUBLIC_AT_ENDPOINTS = {
    *("identity", "sharedSecretFile", "aeronDir", "idle", "reliable", "mtu", "termLength", "maxMessage"),
    *("expiry", "linger", "sessionTimeout", "setupTimeout", "stepTimeout", "keepAlive", "pingTimeout", "sendTimeout"),
    *("closeTimeout", "buffering", "bufferBytes", "bufferTime", "queueBytes", "maxTransfers", "transferMemory"),
    *("transferMemoryTotal", "transferDiskTotal", "spillDir", "maxCalls", "maxRunning", "callBytes", "maxObjects"),
    "workers",
    *("maxTampered", "tamperedTime"),
}
PUBLIC_AT_SERVERS = PUBLIC_AT_ENDPOINTS | {
    *("bind", "ports", "ipc", "replyChannel", "mdcPorts", "sessionIdRange", "authorizedKeys", "allow", "deny"),
    *("maxConnections", "maxConnectionsPerAddress", "maxPending", "maxPendingPerAddress", "handshakesPerSecond"),
    *("handshakeBurst", "exemptLoopback", "maxSessions", "maxConnectionsPerKey", "deciders", "allowAnyKey"),
    "workersPerKey",
    *("maxBulkLinks", "streamsDir", "adminSocket", "stageBytes", "diskReserve", "drainTimeout", "stageBytesPerKey"),
    *(
        "maxPartitions",
        "maxPartitionsPerKey",
        "maxColumns",
        "leaseDelay",
        "memoryLimit",
        "logFormat",
        "logLevel",
        "bytesIn",
    ),
    "syncLevel",
    *("http", "metricsStreams"),
    *("bytesOut", "messagesIn"),
}
PUBLIC_AT_CLIENTS = PUBLIC_AT_ENDPOINTS | {
    *("tag", "bind", "ipc", "knownServers", "serverKey", "trustFirstUse", "validate", "connectTimeout", "reconnect"),
    *("firstPause", "longestPause"),
}


def test_exactly_the_public_names_are_declared() -> None:
    assert {option.name for option in all_options() if option.where & EVERYWHERE} == PUBLIC
    assert {option.name for option in all_options() if Where.SERVER in option.where} == PUBLIC_AT_SERVERS
    assert {option.name for option in all_options() if Where.CLIENT in option.where} == PUBLIC_AT_CLIENTS


def test_a_name_is_declared_at_most_once_for_each_place() -> None:
    for where in Where:
        names = [option.name.lower() for option in all_options() if where in option.where]
        assert len(names) == len(set(names)), where


def test_options_are_found_by_name_in_any_case() -> None:
    assert [one.where for one in options_named("PAYLOAD")] == [READING, WRITING]
    assert options_named("nothing") == ()


def test_no_option_is_both_of_spark_and_of_an_endpoint() -> None:
    """Otherwise one row of the document would have one meaning and default for two kinds of users."""
    assert all(option.where <= EVERYWHERE or option.where <= ENDPOINT for option in all_options())


def test_an_option_has_three_spellings() -> None:
    (option,) = options_named("maxConnectionsPerAddress")
    assert (option.flag, option.argument) == ("--max-connections-per-address", "max_connections_per_address")
    for name in ("maxConnectionsPerAddress", "max_connections_per_address", "max-connections-per-address"):
        assert OptionReader({name: 1}, Where.SERVER).given_options() == (option,)
    with pytest.raises(OptionError, match="unknown option"):
        OptionReader({"max_connectionsperaddress": 1}, Where.SERVER)


def read(reader: OptionReader, option: Option) -> object:
    return reader.value(reader.option(option.name), option.parse)


PLACES = [(option, where) for option in all_options() for where in Where if where in option.where]


@pytest.mark.parametrize(("option", "where"), PLACES, ids=[f"{option.name}-{where.value}" for option, where in PLACES])
def test_the_parser_accepts_defaults_and_examples(option: Option, where: Where) -> None:
    assert (read(OptionReader({}, where), option) is None) == (option.default_in(where) is None)
    assert read(OptionReader({option.name: option.example}, where, format_of(option)), option) is not None
    assert option.example in example(option)
    if where in ENDPOINT:
        assert option.flag in example(option)
    assert option.meaning.endswith(".")
    assert (option.type.label == "one of") == bool(option.type.choices)


ANY_TEXT = ("TEXT", "PATH", "IDENTITY")  # and a server's ``bind``, which is parsed later, with its ports
RESTRICTED = [
    (option, where)
    for option, where in PLACES
    if option.type.metavar not in ANY_TEXT and (option.name, where) != ("bind", Where.SERVER)
]


@pytest.mark.parametrize(
    ("option", "where"), RESTRICTED, ids=[f"{option.name}-{where.value}" for option, where in RESTRICTED]
)
def test_the_error_for_a_wrong_value_has_a_remedy(option: Option, where: Where) -> None:
    with pytest.raises(OptionError) as caught:
        read(OptionReader({option.name: "?!"}, where), option)
    assert f"option '{option.name}'" in str(caught.value)
    assert caught.value.remedy


def test_the_document_is_the_one_in_the_repository() -> None:
    """``make docs`` writes it."""
    assert (ROOT / "docs" / "options.md").read_text(encoding="utf-8") == options_page()


def test_the_document_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "tools" / "options_page.py"), run_name="__main__")
    assert capsys.readouterr().out == options_page()


def test_the_document_has_every_option_in_its_section() -> None:
    shared, reading, sbe, sbe_reading, writing, endpoint = options_page().split("\n## ")[1:]
    both, server, client = endpoint.split("\n### ")[1:]
    for option in all_options():
        in_reading, in_writing = bool(option.where & READING), bool(option.where & WRITING)
        in_server, in_client = bool(option.where & SERVER), bool(option.where & CLIENT)
        if in_server or in_client:
            section = both if in_server and in_client else server if in_server else client
        else:
            section = shared if in_reading and in_writing else reading if in_reading else writing
            if option.name.startswith("sbe"):
                section = sbe if in_writing else sbe_reading
        assert section.count(f"\n| `{option.name}` |") == 1
    assert "| `startingOffsets` | `latest` (stream), `earliest` (batch) |" in reading
    assert "interface=localhost" in shared
    # an unescaped bar inside a cell would begin a new cell
    assert all(line.replace("\\|", "").count("|") == 5 for line in options_page().splitlines() if line.startswith("|"))


def test_an_option_set_has_its_own_options_and_those_of_its_bases() -> None:
    assert list(DirectRoute.options()) == list(DirectRoute.declared)
    assert DirectRoute.declared["connect_timeout"] is ServerRoute.declared["connect_timeout"]
    assert DirectRoute.connect_timeout == 10.0
    assert DirectRoute.declared["channel"].required
    with pytest.raises(TypeError, match="channel"):
        DirectRoute(stream_id=1001)


def test_a_default_is_a_text_or_a_constant_of_another_package() -> None:
    assert (ClientOptions.first_pause, ClientOptions.declared["first_pause"].default) == (0.1, "100ms")
    assert (ServerOptions.max_sessions, ServerOptions.declared["max_sessions"].default) == (MAX_SESSIONS, "10000")
    assert (ServerOptions.max_message, ServerOptions.options()["max_message"].default) == (131072, "128KiB")
    assert ServerOptions.options()["session_id_range"].default == f"{FIRST_SESSION_ID}-{LAST_SESSION_ID}"


def test_help_shows_times_and_limits_after_the_other_options() -> None:
    for endpoint in (ClientOptions, ServerOptions):
        shown = flags_of(endpoint)
        assert sorted(one.name for one in shown) == sorted(one.name for one in endpoint.options().values())
        assert (shown[0].name, shown[8].name) == ("identity", next(iter(endpoint.declared.values())).name)
