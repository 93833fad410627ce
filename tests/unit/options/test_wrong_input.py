"""Every option, misspelt, where it may not stand, and left empty: an error that names it, and helps."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import ClientOptions, ReadOptions, ServerOptions, ServerRoute, WriteOptions
from aeron_spark.options.declaration import CLIENT, ENDPOINT, EVERYWHERE, READING, Option, Route, Where, all_options

STREAM = {"channel": "aeron:ipc", "streamId": "1001"}
SPARK = [where for where in Where if where in EVERYWHERE]
PLACES = [(option, where) for option in all_options() for where in Where if where in option.where]
NAMES = [f"{option.name}-{where.value}" for option, where in PLACES]


def parse(options: dict[str, str], where: Where) -> object:
    if where in ENDPOINT:
        own = {name: text for name, text in options.items() if name not in STREAM}
        return ServerOptions.parse("", own) if where is Where.SERVER else ClientOptions.parse("h:1", own)
    streaming = where in (Where.READ_STREAM, Where.WRITE_STREAM)
    if where in READING:
        return ReadOptions.parse(options, streaming=streaming)
    return WriteOptions.parse(options, streaming=streaming)


def misspellings(name: str) -> set[str]:
    """One letter left out, two exchanged, and one doubled, in the middle of the name."""
    at = len(name) // 2
    return {
        name[:at] + name[at + 1 :],
        name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :],
        name[:at] + name[at] + name[at:],
    } - {name}


@pytest.mark.parametrize(("option", "where"), PLACES, ids=NAMES)
def test_a_misspelt_option_is_refused_with_the_nearest_name(option: Option, where: Where) -> None:
    known = {one.name.lower() for one in all_options()}
    for wrong in misspellings(option.name):
        if wrong.lower() in known:
            continue
        with pytest.raises(OptionError) as caught:
            parse(STREAM | {wrong: option.example}, where)
        assert str(caught.value) == f"there is no option '{wrong}'. Did you mean '{option.name}'?"


@pytest.mark.parametrize(("option", "where"), PLACES, ids=NAMES)
def test_an_option_without_a_value_is_refused_with_an_example(option: Option, where: Where) -> None:
    with pytest.raises(OptionError) as caught:
        parse(STREAM | {option.name: " "}, where)
    assert str(caught.value).startswith(f"option '{option.name}' has no value. For example ")


ELSEWHERE = [
    (option, where)
    for option in all_options()
    for where in SPARK
    if where not in option.where and option.where & EVERYWHERE
]
ELSEWHERE = [
    (option, where)
    for option, where in ELSEWHERE
    if not any(other.name == option.name and where in other.where for other in all_options())
]


@pytest.mark.parametrize(("option", "where"), ELSEWHERE, ids=[f"{o.name}-{w.value}" for o, w in ELSEWHERE])
def test_an_option_in_the_wrong_place_is_refused(option: Option, where: Where) -> None:
    with pytest.raises(OptionError, match=f"^option '{option.name}' is for (batch reads|reading|writing)"):
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
def test_a_servers_option_is_no_clients_and_the_other_way_round(option: Option, where: Where) -> None:
    for name in (option.name, option.argument, option.flag.removeprefix("--")):
        with pytest.raises(OptionError, match=f"^option '{option.name}' is a (client|server)'s; a {where.value} does"):
            parse({name: option.example}, where)


@pytest.mark.parametrize("where", SPARK)
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "no stream is named: option 'channel' is required, with 'streamId'"),
        ({"channel": "aeron:ipc"}, "option 'streamId' is required"),
        ({"streamId": "1001"}, "option 'channel' is required"),
        ({**STREAM, "server": "h:1", "stream": "s"}, "are two ways to reach a stream"),
        ({**STREAM, "stream": "s"}, "belongs to the way through a server, and there is no 'server'"),
        ({"server": "h:1", "stream": "s"}, "option 'server' needs 'serverKey'"),
        ({**STREAM, "STREAMID": "1002"}, "option 'streamId' is given twice, with different values"),
        (
            {**STREAM, "streamId": "2147483648"},
            "must be a whole number from -2147483648 to 2147483647",
        ),
        ({**STREAM, "streamId": "ten"}, "option 'streamId' must be a whole number"),
        ({**STREAM, "connectTimeout": "0s"}, "option 'connectTimeout' must be a duration above zero"),
        ({**STREAM, "connectTimeout": "-1s"}, "option 'connectTimeout' must be a duration above zero"),
        ({**STREAM, "payload": "avro"}, "option 'payload' must be auto, raw, framed or arrow, not 'avro'"),
        ({**STREAM, "channel": "aeron:udp"}, "says nowhere to send to or to listen at"),
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
def test_what_is_wrong_everywhere_is_refused_everywhere(options: dict[str, str], says: str, where: Where) -> None:
    with pytest.raises(OptionError) as caught:
        parse(options, where)
    assert says in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("where", SPARK)
def test_what_is_right_is_accepted_everywhere(where: Where) -> None:
    assert parse(STREAM, where) == parse({name.upper(): value for name, value in STREAM.items()}, where)


KEY = "aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
SERVER = {"server": "h:1", "stream": "s", "serverKey": KEY}
OF_ONE_WAY = [(option, where) for option in all_options() for where in SPARK if where in option.where and option.route]


@pytest.mark.parametrize(("option", "where"), OF_ONE_WAY, ids=[f"{o.name}-{w.value}" for o, w in OF_ONE_WAY])
def test_an_option_of_the_other_way_is_refused_by_name(option: Option, where: Where) -> None:
    way = SERVER if option.route is Route.DIRECT else STREAM
    with pytest.raises(OptionError, match=f"'{option.name}' (are two ways|belongs to the)|'server' and 'channel'"):
        parse(way | {option.name: option.example}, where)


@pytest.mark.parametrize("where", SPARK)
def test_every_option_of_a_client_may_stand_beside_a_server(where: Where) -> None:
    own = {one.name: one.example for one in all_options() if one.where & CLIENT and not rows_of_spark(one.name)}
    assert len(own) > 30
    options = parse(SERVER | own, where)
    assert isinstance(options, ReadOptions | WriteOptions)
    assert isinstance(options.route, ServerRoute)
    assert dict(options.route.client) == own
    for name, example in own.items():
        with pytest.raises(OptionError, match=f"option '{name}' belongs to the way through a server"):
            parse(STREAM | {name: example}, where)


def rows_of_spark(name: str) -> list[Option]:
    return [one for one in all_options() if one.name == name and one.where & EVERYWHERE]
