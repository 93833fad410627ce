"""Each option that is misspelt, misplaced or empty causes an error that names it and has a remedy."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import ClientOptions, ReadOptions, ServerOptions, ServerRoute, WriteOptions
from aeron_spark.options.declaration import (
    CLIENT,
    ENDPOINT,
    EVERYWHERE,
    READING,
    Format,
    Option,
    Route,
    Where,
    all_options,
)
from tests.jvm_options import format_of

STREAM = {"channel": "aeron:ipc", "streamId": "1001"}
SPARK = [where for where in Where if where in EVERYWHERE]
OPTIONS = [(option, where) for option in all_options() for where in Where if where in option.where]
NAMES = [f"{option.name}-{where.value}" for option, where in OPTIONS]


def parse(options: dict[str, str], where: Where, spark_format: Format = Format.AERON) -> object:
    if where in ENDPOINT:
        own = {name: text for name, text in options.items() if name not in STREAM}
        return ServerOptions.parse("", own) if where is Where.SERVER else ClientOptions.parse("h:1", own)
    streaming = where in (Where.READ_STREAM, Where.WRITE_STREAM)
    if where in READING:
        return ReadOptions.parse(options, streaming=streaming, spark_format=spark_format)
    return WriteOptions.parse(options, streaming=streaming)


def misspellings(name: str) -> set[str]:
    """Return the name with a letter missing, two letters exchanged, and a letter doubled, in its middle."""
    at = len(name) // 2
    return {
        name[:at] + name[at + 1 :],
        name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :],
        name[:at] + name[at] + name[at:],
    } - {name}


@pytest.mark.parametrize(("option", "where"), OPTIONS, ids=NAMES)
def test_a_misspelt_option_is_refused_with_the_nearest_name(option: Option, where: Where) -> None:
    known = {one.name.lower() for one in all_options()}
    for wrong in misspellings(option.name):
        if wrong.lower() in known:
            continue
        with pytest.raises(OptionError) as caught:
            parse(STREAM | {wrong: option.example}, where, format_of(option))
        assert str(caught.value) == f"unknown option '{wrong}'. Did you mean '{option.name}'?"


@pytest.mark.parametrize(("option", "where"), OPTIONS, ids=NAMES)
def test_an_option_without_a_value_is_refused_with_an_example(option: Option, where: Where) -> None:
    with pytest.raises(OptionError) as caught:
        parse(STREAM | {option.name: " "}, where, format_of(option))
    assert str(caught.value).startswith(f"option '{option.name}' has no value. For example ")


MISPLACED = [
    (option, where)
    for option in all_options()
    for where in SPARK
    if where not in option.where and option.where & EVERYWHERE
]
MISPLACED = [
    (option, where)
    for option, where in MISPLACED
    if not any(other.name == option.name and where in other.where for other in all_options())
]


@pytest.mark.parametrize(("option", "where"), MISPLACED, ids=[f"{o.name}-{w.value}" for o, w in MISPLACED])
def test_an_option_in_the_wrong_place_is_refused(option: Option, where: Where) -> None:
    with pytest.raises(OptionError, match=f"^option '{option.name}' is only for (batch reads|reading|writing)"):
        parse(STREAM | {option.name: option.example}, where)


ENDPOINTS = [
    (option, where)
    for option in all_options()
    for where in Where
    if where in ENDPOINT
    and option.where <= ENDPOINT
    and not any(other.name == option.name and where in other.where for other in all_options())
]


@pytest.mark.parametrize(("option", "where"), ENDPOINTS, ids=[f"{o.name}-{w.value}" for o, w in ENDPOINTS])
def test_a_server_option_is_refused_at_a_client_and_a_client_option_at_a_server(option: Option, where: Where) -> None:
    for name in (option.name, option.argument, option.flag.removeprefix("--")):
        with pytest.raises(
            OptionError, match=f"^option '{option.name}' is only for a (client|server), not for a {where.value}"
        ):
            parse({name: option.example}, where)


@pytest.mark.parametrize("where", SPARK)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "no stream is named: option 'channel' is required, with 'streamId'"),
        ({"channel": "aeron:ipc"}, "option 'streamId' is required"),
        ({"streamId": "1001"}, "option 'channel' is required"),
        (
            {**STREAM, "server": "h:1", "stream": "s"},
            "selects the route through a server, and 'channel' the direct route",
        ),
        ({**STREAM, "stream": "s"}, "is only for the route through a server, and 'server' is missing"),
        ({"server": "h:1", "stream": "s"}, "option 'server' needs 'serverKey'"),
        ({**STREAM, "STREAMID": "1002"}, "option 'streamId' is given twice, with different values"),
        ({**STREAM, "streamId": "2147483648"}, "must be a whole number from -2147483648 to 2147483647"),
        ({**STREAM, "streamId": "ten"}, "option 'streamId' must be a whole number"),
        ({**STREAM, "connectTimeout": "0s"}, "option 'connectTimeout' must be a duration above zero"),
        ({**STREAM, "connectTimeout": "-1s"}, "option 'connectTimeout' must be a duration above zero"),
        ({**STREAM, "payload": "avro"}, "option 'payload' must be auto, raw, framed"),
        ({**STREAM, "channel": "aeron:udp"}, "has no address to send to or to listen on"),
        ({**STREAM, "channel": "aeron:udp?endpiont=localhost:1"}, "Did you mean 'endpoint'?"),
        ({**STREAM, "channel": "kafka:topic"}, "does not begin with 'aeron:'"),
        ({**STREAM, "archive": "localhost:8010"}, "does not begin with 'aeron:'"),
        (
            {**STREAM, "streamId": "10"},
            "option 'streamId': stream 10 of aeron:ipc is a control stream of an Aeron Archive",
        ),
        (
            {**STREAM, "streamId": "20"},
            "option 'streamId': stream 20 of aeron:ipc is a control stream of an Aeron Archive",
        ),
    ],
)
def test_a_wrong_option_is_refused_in_each_place(options: dict[str, str], text: str, where: Where) -> None:
    with pytest.raises(OptionError) as caught:
        parse(options, where)
    assert text in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("where", SPARK)
def test_the_required_options_are_accepted_in_each_place(where: Where) -> None:
    assert parse(STREAM, where) == parse({name.upper(): value for name, value in STREAM.items()}, where)


KEY = "aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
SERVER = {"server": "h:1", "stream": "s", "serverKey": KEY}
OF_ONE_ROUTE = [
    (option, where) for option in all_options() for where in SPARK if where in option.where and option.route
]


@pytest.mark.parametrize(("option", "where"), OF_ONE_ROUTE, ids=[f"{o.name}-{w.value}" for o, w in OF_ONE_ROUTE])
def test_an_option_of_the_other_route_is_refused_by_name(option: Option, where: Where) -> None:
    route = SERVER if option.route is Route.DIRECT else STREAM
    with pytest.raises(
        OptionError, match=f"'{option.name}' (the direct route|is only for the)|and 'channel' the direct"
    ):
        parse(route | {option.name: option.example}, where)


@pytest.mark.parametrize("where", SPARK)
def test_every_client_option_is_allowed_on_the_route_through_a_server(where: Where) -> None:
    own = {one.name: one.example for one in all_options() if one.where & CLIENT and not rows_of_spark(one.name)}
    assert len(own) > 30
    options = parse(SERVER | own, where)
    assert isinstance(options, ReadOptions | WriteOptions)
    assert isinstance(options.route, ServerRoute)
    assert dict(options.route.client) == own
    for name, example in own.items():
        with pytest.raises(OptionError, match=f"option '{name}' is only for the route through a server"):
            parse(STREAM | {name: example}, where)


def rows_of_spark(name: str) -> list[Option]:
    return [one for one in all_options() if one.name == name and one.where & EVERYWHERE]
