"""Names: case, Spark's own, misspelt, misplaced, empty and repeated ones."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import ENDPOINT, EVERYWHERE, Where, all_options
from aeron_spark.options.reader import OptionReader, only_in_batches
from aeron_spark.protocol.access import Network


def refused(options: dict[str, object], where: Where = Where.READ_STREAM) -> str:
    with pytest.raises(OptionError) as caught:
        OptionReader(options, where)
    assert caught.value.remedy
    return str(caught.value)


def test_names_are_read_whatever_their_case() -> None:
    given = OptionReader({"STREAMid": " 7 "}, Where.READ_STREAM)
    assert value(given, "streamId") == 7
    assert names(given) == ["streamId"]
    assert "streamId" in given
    assert "channel" not in given


@pytest.mark.parametrize(
    "name", ["checkpointLocation", "queryName", "path", "outputmode", "_asyncProgressTracking", "__x", "spark.sql.x"]
)
def test_what_spark_passes_itself_is_let_through(name: str) -> None:
    for where in EVERYWHERE:
        assert OptionReader({name: "anything"}, where).given() == ()
    for where in ENDPOINT:
        refused({name: "anything"}, where)


def misspelt(name: str) -> list[str]:
    return [name[:-1], name + "s", name[1:], name[:2] + name[3:], name[0] + name[2] + name[1] + name[3:]]


def value(given: OptionReader, name: str) -> object:
    option = given.option(name)
    return given.value(option, option.parse)


def names(given: OptionReader) -> list[str]:
    return [option.name for option in given.given()]


NAMES = sorted({option.name for option in all_options()})


@pytest.mark.parametrize("name", NAMES)
def test_every_option_misspelt_is_refused_with_the_right_name(name: str) -> None:
    known = {one.lower() for one in NAMES}
    option = next(one for one in all_options() if one.name == name)
    where = next(place for place in Where if place in option.where)
    for wrong in misspelt(name):
        if wrong.lower() in known:
            continue
        assert refused({wrong: "x"}, where).startswith(f"there is no option '{wrong}'. Did you mean '")
    assert f"Did you mean '{name}'?" in refused({name[:-1] + "_" + name[-1]: "x"}, where)


def test_a_name_like_no_other_gets_the_list_of_this_place() -> None:
    told = refused({"zzzzzzzz": "x"}, Where.WRITE_BATCH)
    assert "The options are: ack, aeronDir, archive" in told
    assert "startingOffsets" not in told


@pytest.mark.parametrize(
    ("name", "where", "sentence"),
    [
        ("startingOffsets", Where.WRITE_STREAM, "'startingOffsets' is for reading; a writer does not know it"),
        ("endPosition", Where.WRITE_BATCH, "'endPosition' is for reading; a writer does not know it"),
        ("ack", Where.READ_BATCH, "'ack' is for writing; a reader does not know it"),
        ("writerid", Where.READ_STREAM, "'writerId' is for writing; a reader does not know it"),
        ("tag", Where.SERVER, "'tag' is a client's; a server does not know it"),
        ("max_connections", Where.CLIENT, "'maxConnections' is a server's; a client does not know it"),
        ("endingOffsets", Where.READ_STREAM, "'endingOffsets' is for batch reads (spark.read); a stream has no such"),
    ],
)
def test_an_option_of_another_place_says_where_it_belongs(name: str, where: Where, sentence: str) -> None:
    assert sentence in refused({name: "1"}, where)


@pytest.mark.parametrize("where", sorted(EVERYWHERE, key=lambda one: one.value))
def test_options_of_a_client_stand_beside_sparks_own_and_are_kept_apart(where: Where) -> None:
    given = OptionReader({"TAG": " desk-7 ", "mtu": "8k", "stream": "flights"}, where)
    assert names(given) == ["stream"]
    assert given.of_client() == (("mtu", "8k"), ("tag", "desk-7"))
    assert "given twice" in refused({"tag": "a", "Tag": "b"}, where)
    assert refused({"tag": ""}, where) == "option 'tag' has no value. For example .option('tag', 'desk-7')"
    assert "Did you mean 'pingTimeout'?" in refused({"pingTimeut": "1s"}, where)


@pytest.mark.parametrize("name", ["maxConnections", "mdcPorts"])
def test_an_option_of_a_server_alone_is_no_option_of_spark(name: str) -> None:
    assert f"option '{name}' is a server's; a client does not know it" in refused({name: "1"})


def test_values_of_programs_and_files_are_read_as_their_texts() -> None:
    given = OptionReader(
        {"exempt_loopback": True, "max_connections": 7, "handshakesPerSecond": 0.5, "allow": ["10.0.0.0/8", "::1"]},
        Where.SERVER,
    )
    assert value(given, "exemptLoopback")
    assert value(given, "maxConnections") == 7
    assert value(given, "handshakesPerSecond") == 0.5
    assert value(given, "allow") == (Network.parse("10.0.0.0/8"), Network.parse("::1"))
    assert value(given, "deny") is None


def test_one_option_in_two_spellings_is_one_option() -> None:
    assert "given twice" in refused({"maxPending": 1, "max_pending": 2}, Where.SERVER)


def test_an_option_without_a_value_is_refused() -> None:
    assert refused({"channel": "  "}).startswith(
        "option 'channel' has no value. For example .option('channel', 'aeron:"
    )
    assert OptionReader({"channel": None}, Where.READ_STREAM).given() == ()


def test_an_option_given_twice_in_different_ways_is_refused() -> None:
    assert "given twice" in refused({"streamId": "1", "STREAMID": "2"})
    assert value(OptionReader({"streamId": "1", "STREAMID": "1"}, Where.READ_STREAM), "streamId") == 1


def test_an_example_is_quoted_so_that_it_can_be_pasted() -> None:
    with pytest.raises(OptionError, match=r"For example \.option\('endingOffsets', '\{\"embedded/7\": 8192\}'\)"):
        value(OptionReader({"endingOffsets": "?"}, Where.READ_BATCH), "endingOffsets")


def test_a_long_wrong_value_is_shortened() -> None:
    with pytest.raises(OptionError) as caught:
        value(OptionReader({"streamId": "9" * 5000}, Where.READ_STREAM), "streamId")
    assert len(str(caught.value)) < 400


def test_a_response_channel_may_be_the_word_or_a_channel() -> None:
    given = OptionReader({"responseChannel": "RESPONSE", "replayChannel": "aeron:udp?endpoint=h:0"}, Where.READ_STREAM)
    assert value(given, "responseChannel") == "response"
    assert value(given, "replayChannel") == "aeron:udp?endpoint=h:0"


def test_archives_are_checked_each() -> None:
    text = "Embedded,aeron:udp?endpoint=h:8010"
    given = OptionReader({"archive": text}, Where.READ_STREAM)
    assert value(given, "archive") == ("embedded", "aeron:udp?endpoint=h:8010")
    with pytest.raises(OptionError, match="option 'archive': the channel 'aeron:upd"):
        value(OptionReader({"archive": "embedded,aeron:upd?endpoint=h:8010"}, Where.READ_STREAM), "archive")


def test_it_is_known_which_options_only_a_batch_has() -> None:
    assert only_in_batches(["channel", "ENDINGOFFSETS"])
    assert not only_in_batches(["channel", "startingOffsets", "maxRowsPerTrigger", "ack", "nonsense"])
