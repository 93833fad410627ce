"""``format("aeron-jvm")`` reads options and channels as the Python source does: the same values and texts of errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_spark.options.declaration import READING, SPARK_OPTIONS, Format, Option, all_options
from aeron_spark.options.kafka_names import OPTIONS as KAFKA_OPTIONS
from aeron_spark.transport.channel import OTHER_NAMES, PARAMETERS
from tests.jvm_answers import Answers, java_answers
from tests.jvm_options import answer, channel_answer, in_python

STREAM: Final = {"channel": "aeron:ipc", "streamId": "1001"}
# white space, letters with an unusual lower case, digits of other scripts, and characters that repr escapes; the lone
# half of a surrogate pair is the second one, because two halves would become one character in Java
CHARACTERS: Final = (
    "abkstAZ019 _-.,:;/|=?@#%*+[]{}()<>'\"\\\t\n\r\x00\x1c\x7f\x85\xa0\xad\xe9\xdf\u0130\u0131\u017f\u0378\u0663\u1680"
    "\u200b\u2028\u202e\u212a\u3000\ue000\U0001f600\udc80"
)
WORDS: Final = (
    "true", "FALSE", "yes", "0", "1", "-1", "+7", "007", "1.5", "1e3", "2147483647", "2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "99999999999999999999", "raw", "SBE", "sbe", "auto", "files", "never",
    "latest", "Earliest", "{}", "[]", "null", "embedded", "Embedded", "embedded,embedded", "response", "aeron:ipc",
    "reserved-ns", "RESERVED-MS", "-10min", "-1e3", "2026-03-01", "2026-02-29T10:00", "2024-02-29 10:00:60",
    "2026-03-01T09:30:00.5Z", "2026-03-01t09:30:00,123456789+05:30", "2026-03-01T09:30-1530", "2026-03-01T09:30+23:59",
    "1677-09-21T00:12:43.145224193Z", "1677-09-21T00:12:43.1Z", "2262-04-11T23:47:16.854775807", "2262-04-11T23:47:17",
    "9999-12-31", "*", "Trade,Quote", "a b", "exact", "double", "decimal(38,38)", "DECIMAL(1,0)", "decimal(0,0)",
    "explicit", "none", "t:us", "a:ns,b:ms", "a:us,a:us", "permissive", "FAILFAST", "one", "sofh", "flags", "keep",
    "17,-4242", "17,,18", "17, 17", "1-2",
)  # fmt: skip
UNITS: Final = (
    "",
    " ",
    "s",
    "ms",
    "us",
    "ns",
    "m",
    "min",
    "h",
    "d",
    "k",
    "K",
    "kb",
    "KiB",
    "MiB",
    "g",
    "T",
    "tib",
    "b",
    "x",
)

texts = st.text(CHARACTERS, max_size=12)
numbers = st.sampled_from(
    ("0", "1", "5", "64", "1.5", "0.000000001", "999999999999999999", "8589934592", "00", ".5", "1.")
)
amounts = st.builds("{}{}".format, numbers, st.sampled_from(UNITS))


def changed(names: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return the names with a part left out, repeated or replaced."""

    def change(name: str, at: int, end: int, part: str) -> str:
        start = at % (len(name) + 1)
        return name[:start] + part + name[start + end :]

    return st.builds(change, names, st.integers(0, 30), st.integers(0, 3), st.sampled_from(("", "", "x", "_", "ss")))


def spelt(name: str) -> list[str]:
    """Return the spellings of an option: of Spark, of Python, of the command line, and others."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return [name, name, name.lower(), name.upper(), snake, "--" + snake.replace("_", "-"), name[0].upper() + name[1:]]


hosts = st.sampled_from(
    ("localhost", "LOCALHOST.", "Host-1.example", "-a", "a-", "10.0.0.7", "10.0.0.07", "127.1", "256.1.1.1",
     "1.2.3.4.5", "224.20.30.39", "224.20.30.40", "[::1]", "[0:0:0:0:0:0:0:1]", "[ff02::1]", "[FF02::2%eth0]",
     "[::ffff:10.0.0.7]",
     "[fe80::1%eth0]", "[1::2::3]", "[1:2:3:4:5:6:7:8]", "[1:2:3:4:5:6:7::]", "[::2:3:4:5:6:7:8]",
     "[1:2:3:4:5:6:7:8:9]",
     "[12345::]", "[::1.2.3.4]", "[::1.2.3]", "[1:0:0:2:0:0:0:3]", "[:1]", "[1:]", "::1", "[]", "", "{eth0}", "0.0.0.0",
     "[::]")
)  # fmt: skip
ports = st.sampled_from(
    ("", ":0", ":40123", ":65535", ":65536", ":00080", ":123456", ":x", "/8", "/24", "/33", "/129", ":7/16")
)
addresses = st.builds("{}{}".format, hosts, ports)
parameter_values = st.one_of(
    addresses,
    amounts,
    st.sampled_from(
        ("64k", "65536", "100k", "1g", "2g", "1408", "64", "reserved", "prototype", "tag:7", "tag:-1", "tag:",
         "dynamic",
         "manual", "response", "infer", "true", "false", "TRUE", "5", "-5", "4294967296", "32", "96", "a;b", "a,b")
    ),
    texts,
)  # fmt: skip
parameter_names = st.one_of(
    st.sampled_from(("endpoint", "control", "control-mode", "interface")),
    st.sampled_from(tuple(PARAMETERS)),
    st.sampled_from(tuple(OTHER_NAMES)),
    changed(st.sampled_from(tuple(PARAMETERS))),
)
parameters = st.builds("{}={}".format, parameter_names, parameter_values)
positions = st.builds(
    "init-term-id={}|term-id={}|term-offset={}".format, *(st.sampled_from((0, 5, -5, 32, 64, 2**31 - 1)),) * 3
)
queries = st.lists(st.one_of(parameters, parameters, positions, texts), max_size=3).map("|".join)
media = st.sampled_from(("ipc", "udp", "udp", "udp", "upd", "UDP", "tcp", ""))
prefixes = st.sampled_from(("aeron:", "aeron:", "aeron:", "aeron-spy:aeron:", "aeron-spy:", "aeon:", ""))
channels = st.builds("{}{}{}{}".format, prefixes, media, st.sampled_from(("?", "?", "?endpoint=a:1|", "")), queries)

json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-1, 2**64), st.integers(0, 2**58).map(lambda n: n * 32), texts,
        st.floats(), st.sampled_from(("earliest", "latest")),
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=3,
)  # fmt: skip
recordings = st.one_of(
    st.builds("{}{}".format, st.sampled_from(("", "embedded/", "aeron:udp?endpoint=a:1/", "/")), st.integers(0, 30)),
    texts,
)
offsets = st.dictionaries(recordings, json_values, max_size=3).map(json.dumps)
repeated = st.builds('{{"{0}": 32, "{1}": 64}}'.format, st.integers(0, 2), st.integers(0, 2))

OF_TYPE: Final[dict[str, st.SearchStrategy[str]]] = {
    "CHANNEL": channels,
    "RESPONSE": channels,
    "ARCHIVES": st.lists(channels | st.sampled_from(("embedded", " embedded", "")), min_size=1, max_size=3).map(
        ",".join
    ),
    "OFFSETS": offsets | repeated | changed(offsets),
    "TIMES": st.lists(st.builds("{}:{}".format, texts, st.sampled_from(("s", "ms", "us", "ns", "m"))), max_size=2).map(
        ",".join
    ),
}


def given_option(option: Option) -> st.SearchStrategy[tuple[str, str]]:
    """Return the option in a spelling of Spark, with a right or a wrong value."""
    right = (option.example, option.default or option.example, *option.type.choices)
    values = st.one_of(
        st.sampled_from((*right * 12, *WORDS)),
        amounts,
        OF_TYPE.get(option.type.metavar, changed(st.sampled_from(right))),
    )
    return st.tuples(st.sampled_from(spelt(option.name)[:4]), values)


READERS: Final = [option for option in all_options() if option.where & READING and Format.AERON_JVM in option.formats]
NAMED: Final = tuple(spelling for option in all_options() for spelling in spelt(option.name))
wrong_names = st.one_of(
    st.sampled_from(NAMED),
    changed(st.sampled_from((*NAMED, *sorted(SPARK_OPTIONS), *KAFKA_OPTIONS, "checkpointLocation", "spark.x", "__x"))),
    texts,
)
given_options = st.one_of(*map(given_option, READERS))
bases = st.sampled_from((STREAM, STREAM, STREAM | {"payload": "sbe", "sbeSchema": "x"}))


def merged(base: dict[str, str], named: list[tuple[str, str]]) -> dict[str, str]:
    """Return the base with these options in place of its own."""
    given = {name.lower() for name, _ in named}
    return {name: text for name, text in base.items() if name.lower() not in given} | dict(named)


some_options = st.builds(merged, bases, st.lists(given_options, max_size=4, unique_by=lambda pair: pair[0].lower()))


@pytest.fixture(scope="module")
def java() -> Iterator[Answers]:
    with java_answers("option/OptionAnswers.java") as answers:
        yield answers


@given(options=some_options, streaming=st.booleans())
@settings(max_examples=1_500, deadline=None)
def test_both_sources_read_values_alike(java: Answers, options: dict[str, str], streaming: bool) -> None:
    assert in_python(java.answer(options=options, streaming=streaming)) == answer(options, streaming=streaming)


@given(name=wrong_names, value=st.sampled_from(WORDS) | texts, streaming=st.booleans())
@settings(max_examples=500, deadline=None)
def test_both_sources_read_names_alike(java: Answers, name: str, value: str, streaming: bool) -> None:
    options = STREAM | {name: value}
    assert in_python(java.answer(options=options, streaming=streaming)) == answer(options, streaming=streaming)


@given(channel=channels, foreign=st.booleans())
@settings(max_examples=1_000, deadline=None)
def test_both_sources_read_channels_alike(java: Answers, channel: str, foreign: bool) -> None:
    assert java.answer(channel=channel, foreign=foreign) == channel_answer(channel, foreign=foreign)
