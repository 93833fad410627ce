"""The forms of inputs: where the parts of a valid input are, what may take the place of a part, and long parts.

A form knows nothing of a decoder. ``parts`` finds the values within a valid input, each of which may be replaced.
``values`` are short replacements, and ``long_values(size)`` has replacements of ``size`` bytes, each of which made
decoders slow, or made them use much memory, or is likely to.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from msgspec import msgpack

Part = tuple[int, int]  # begin and end of a value within an input


@dataclass(frozen=True)
class Form:
    """A form of inputs; see above."""

    parts: Callable[[bytes], list[Part]]
    values: Sequence[bytes]
    long_values: Callable[[int], dict[str, bytes]]


EXTREMES: Final = tuple(
    number.to_bytes(width, order)
    for width in (1, 2, 4, 8)
    for number in (0, 1, 1 << 8 * width - 1, (1 << 8 * width - 1) - 1, (1 << 8 * width) - 1)
    for order in ("big", "little")
)


def _no_parts(_: bytes) -> list[Part]:
    return []


def _long_bytes(size: int) -> dict[str, bytes]:
    return {"zeros": bytes(size), "ones": b"\xff" * size, "bytes": bytes(range(256)) * (size // 256)}


BYTES: Final = Form(_no_parts, EXTREMES, _long_bytes)


# MessagePack

_WIDTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_NUMBERS: Final = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_EXTENSIONS: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_ARRAYS: Final = {0xDC: 2, 0xDD: 4}
_MAPS: Final = {0xDE: 2, 0xDF: 4}


def messagepack(prefix: int = 0) -> Form:
    """Return the form of MessagePack after ``prefix`` other bytes."""

    def parts(data: bytes) -> list[Part]:
        found: list[Part] = []
        with suppress(IndexError):  # a text or bytes, which are no MessagePack in a message
            _value(data, prefix, found)
        return [(begin, end) for begin, end in found if end <= len(data)]

    return Form(parts, _MESSAGEPACK, _long_messagepack)


def _value(data: bytes, at: int, found: list[Part]) -> int:
    """Add the value at ``at``, and the values in it, to ``found``; return its end."""
    first = data[at]
    count = 0
    end = at + 1
    if 0x80 <= first <= 0x9F:
        count = (first & 15) * (2 if first < 0x90 else 1)
    elif 0xA0 <= first <= 0xBF:
        end += first & 31
    elif first in _NUMBERS:
        end += _NUMBERS[first]
    elif first in _FIXED:
        end += 1 + _FIXED[first]
    else:
        for table, each, head in ((_WIDTHS, 0, 0), (_EXTENSIONS, 0, 1), (_ARRAYS, 1, 0), (_MAPS, 2, 0)):
            if first in table:
                number = int.from_bytes(data[end : end + table[first]], "big")
                end += table[first] + (0 if each else number + head)
                count = number * each
    for _ in range(count):
        end = _value(data, end, found)
    found.append((at, end))
    return end


def _array(count: int, entries: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + entries


def _map(count: int, entries: bytes) -> bytes:
    return b"\xdf" + count.to_bytes(4, "big") + entries


def colliding_numbers(count: int) -> list[int]:
    """Return numbers below 2^31 that a dict of ``count`` entries finds only after many steps.

    A dict of 2^m places looks for a number of at most m bits in its own place. After a place i that is taken it looks
    in 5i + 1 plus the number's higher bits, of which each step drops five. The first numbers take places that follow
    each other in the sequence 5i + 1. All others come to the beginning of this sequence, by places that are taken, and
    walk through it.
    """
    places = 8
    while places * 2 // 3 < count:
        places *= 2
    fillers = count * 2 // 3
    chain = np.empty(fillers, np.int32)
    place = 1
    for index in range(fillers):
        chain[index] = place
        place = (5 * place + 1) % places
    order = np.full(places, places, np.int32)
    order[chain] = np.arange(fillers, dtype=np.int32)
    numbers = np.arange(places, places << 8, dtype=np.int32)
    at, rest = numbers % places, numbers
    usable = order[at] < places
    while usable.any() and rest.any():
        numbers, at, rest = numbers[usable], at[usable], rest[usable] >> 5
        at = np.where(rest > 0, (5 * at + rest + 1) % places, at)
        usable = order[at] < places
    numbers, at = numbers[usable], at[usable]
    nearest = numbers[np.argsort(order[at], kind="stable")[: count - fillers]]
    return [*chain.tolist(), *nearest.tolist()]


def _numbers_as_keys(size: int) -> bytes:
    numbers = colliding_numbers(size // 6)
    return _map(len(numbers), b"".join(b"\xce" + number.to_bytes(4, "big") + b"\0" for number in numbers))


def _equal_hashes(size: int) -> bytes:
    """Return a map of keys that differ only in bits that a dict looks at last."""
    numbers = [(step % 8) * (2**61 - 1) + (step // 8 << 45) for step in range(size // 10)]
    return _map(len(numbers), b"".join(b"\xcf" + (number % 2**64).to_bytes(8, "big") + b"\0" for number in numbers))


@lru_cache(4)
def _long_messagepack(size: int) -> dict[str, bytes]:
    nested = bytearray(b"\xc0")
    while len(nested) < min(size, 6 * 2_000):  # an extension of type 1 is a tuple of the endpoint's messages
        nested[:0] = b"\xc9" + (len(nested) + 1).to_bytes(4, "big") + b"\x01\x91"
    texts = b"".join(b"\xa8%08d\0" % number for number in range(size // 10))
    return {
        "nested arrays": b"\x91" * size + b"\xc0",
        "nested maps": b"\x81\xa1a" * (size // 3) + b"\xc0",
        "nested extensions": bytes(nested),
        "numbers": _array(size, bytes(size)),
        "empty arrays": _array(size, b"\x90" * size),
        "empty maps": _array(size, b"\x80" * size),
        "texts": _array(size, b"\xa0" * size),
        "small extensions": _array(size // 3, b"\xd4\x03\x31" * (size // 3)),
        "tuples": _array(size // 3, b"\xd4\x01\x90" * (size // 3)),
        "timestamps": _array(size // 6, b"\xd6\xff\0\0\0\0" * (size // 6)),
        "texts as keys": _map(size // 10, texts),
        "equal keys": _map(size // 2, b"\xa0\0" * (size // 2)),
        "numbers as keys": _numbers_as_keys(size),
        "keys of equal hashes": _equal_hashes(size),
        "text": b"\xdb" + size.to_bytes(4, "big") + b"a" * size,
        "wide text": b"\xdb" + (size // 4 * 4).to_bytes(4, "big") + "\U0001f600".encode() * (size // 4),
        "wrong text": b"\xdb" + size.to_bytes(4, "big") + b"\xff" * size,
        "bytes": b"\xc6" + size.to_bytes(4, "big") + b"\0" * size,
        "floats": _array(size // 9, (b"\xcb" + struct.pack(">d", float("nan"))) * (size // 9)),
    }


def _short_messagepack() -> Iterator[bytes]:
    values: list[Any] = [None, True, 0, 1, -1, 127, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0.5, "", "a", b"", []]
    values += [float("nan"), float("inf"), -float("inf"), {}, [0], {"": 0}, {1: 2}, "x" * 300, b"x" * 70, [[[]]]]
    values += [
        "\0",
        "\n",
        "..",
        "stage",
        "😀",
        "-1",
        "1970-01-01",
        b"\xff" * 8,
        [None] * 20,
        {b"k": "v"},
        -128,
        255,
        65_536,
    ]
    yield from map(msgpack.encode, values)
    yield from map(msgpack.encode, [msgpack.Ext(code, data) for code in range(-2, 8) for data in _EXTENSION_BYTES])
    yield from (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\x7f\xff\xff\xff")
    yield from (b"\xc9\xff\xff\xff\xff\x01", b"\xc1", b"\xa1\xff", b"\x91" * 100 + b"\xc0", b"\x91" * 20 + b"\xc0")
    yield from (b"\x91" * depth + b"\xc0" for depth in (300, 480, 600, 900, 985))
    yield from (
        b"\x81\xc0\xc0",
        b"\x82\xa0\0\xa0\0",
        b"\x81\xca\x7f\xc0\0\0\0",
        b"\x81\x90\0",
        b"\xcc\x05",
        b"\xcf" + bytes(8),
    )


_EXTENSION_BYTES: Final = (
    b"", b"\x90", b"\0", bytes(4), bytes(8), bytes(12), bytes(16), b"\xff" * 4, b"\xff" * 8, b"\xff" * 12, b"1.5",
    b"sNaN", b"NaN123", b"-Infinity", b"1e999999999", b"9" * 512, b"9" * 513, b"2024-02-29T23:59:60",
    b"2024-01-01T00:00:00+24:00", b"9999-12-31T23:59:59.999999", b"0001-01-01T00:00:00-23:59", b"\0\x40\xc0",
    b"\0\x40\x90", b"\0\x40\x80", b"\0\x01", b"\0\xa1a", b"\x02\xa1a", b"\0\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x91\xc0", b"\x81\xa0\xc0",
)  # fmt: skip
_MESSAGEPACK: Final = tuple(_short_messagepack())


# JSON

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]|[^][{},:"\s]+')


def _json_parts(data: bytes) -> list[Part]:
    found, opened = [], []
    for match in _TOKEN.finditer(data):
        first = match[0][:1]
        if first in b"[{":
            opened.append(match.start())
        elif first in b"]}":
            if opened:
                found.append((opened.pop(), match.end()))
        else:
            found.append(match.span())
    return found


_NESTED_JSON: Final = tuple(  # below and at the depth of Python's stack
    first * depth + b"0" + last * depth
    for depth in (50, 300, 480, 600, 900, 985)
    for first, last in ((b"[", b"]"), (b'{"a":', b"}"))
)
_JSON_VALUES: Final = (
    b"null", b"true", b"false", b"0", b"-0", b"1", b"-1", b"1.0", b"0.5", b"1e3", b"1e999", b"-1e999", b"1e-999",
    b"NaN", b"Infinity", b"-Infinity", b"9223372036854775807", b"9223372036854775808", b"18446744073709551615",
    b"18446744073709551616", b"-9223372036854775809", b"9" * 4_299, b"9" * 5_000, b"-" + b"9" * 5_000, b"01", b"1e",
    b'""', b'"a"', b'"\\ud800"', b'"\\udc00x"', b'"\\ud83d\\ude00"', b'"\\u0000"', b'"\\n"', b'"\xff"', b'"', b"[]",
    b"{}", b"[[]]", b"[0]", b'{"a":1}', b'{"a":1,"a":2}', b'{"":{}}', *_NESTED_JSON, b"[null,1]",
    b'"' + b"x" * 300 + b'"', b"'a'", b'"aeron:udp?endpoint=a:1"', b'"archive/1"', b'"a/00"', b'"/1"', b'"1"', b'"-1"',
    b'"0000000000000000"', b'"1e999"', b'"2030-01-01"', b'"AAAA"', b'"gICAgICAgICA"', b'"////////////////"', b"'",
    b"\\", b",", b":", b"\xef\xbb\xbf", b"/**/1",
)  # fmt: skip


def _long_json(size: int) -> dict[str, bytes]:
    names = b",".join(b'"%07d":0' % number for number in range(size // 12))
    return {
        "nested arrays": b"[" * (size // 2) + b"]" * (size // 2),
        "nested objects": b'{"a":' * (size // 6) + b"0" + b"}" * (size // 6),
        "open arrays": b"[" * size,
        "digits": b"9" * size,
        "digits after the point": b"0." + b"1" * size,
        "digits before the exponent": b"1" * size + b".5e10",
        "exponent": b"1e" + b"9" * size,
        "numbers": b"[" + b"0," * (size // 2) + b"0]",
        "large numbers": b"[" + (b"9" * 4_000 + b",") * (size // 4_001) + b"0]",
        "empty objects": b"[" + b"{}," * (size // 3) + b"0]",
        "names": b"{" + names + b"}",
        "equal names": b"{" + b'"a":0,' * (size // 6) + b'"a":0}',
        "text": b'"' + b"a" * size + b'"',
        "lone surrogates": b'"' + b"\\ud800" * (size // 6) + b'"',
        "wide text": b'"' + "\U0001f600".encode() * (size // 4) + b'"',
        "escapes": b'"' + b"\\n" * (size // 2) + b'"',
        "slashes": b'"' + b"/" * size + b'"',
        "base64": b'"' + b"AAAA" * (size // 4) + b'"',
        "spaces": b" " * size,
    }


JSON: Final = Form(_json_parts, _JSON_VALUES, _long_json)


# Lines of words, and XML

_WORD: Final = re.compile(rb"[^\s=:,]+|[\s=:,]")


def _words(data: bytes) -> list[Part]:
    return [match.span() for match in _WORD.finditer(data)]


_WORDS: Final = (
    b"", b" ", b"\n", b"\r", b"\t", b"\0", b"=", b":", b",", b"#", b"*", b"%", b"/", b"-1", b"0", b"1", b"99999",
    b"65536", b"9" * 5_000, b"1e999", b"NaN", b"\xff", b"\xc2\xa0", b"\xe2\x80\xa8", b"\x0c", b"\x1c", "٣".encode(),
    "²".encode(), "😀".encode(), b"all", b"role", b"[", b"]", b"[::1]", b"::ffff:1.2.3.4", b"fe80::1%eth0",
    b"10.0.0.0/8", b"1.2.3.4/99", b"9999-12-31", b"0001-01-01", b"2024-02-30T00:00:00Z", b"ipc:", b"ipc:/%00",
    b"ipc:/%ff", b"ipc:/%", b"a" * 300, b"xn--", b"a..b", b"-", b".", b"..",
)  # fmt: skip


def _long_words(size: int) -> dict[str, bytes]:
    return {
        "word": b"a" * size,
        "words": b"a " * (size // 2),
        "spaces": b" " * size,
        "lines": b"\n" * size,
        "lines of one letter": b"a\n" * (size // 2),
        "commas": b"a," * (size // 2) + b"a",
        "digits": b"9" * size,
        "colons": b":" * size,
        "stars": b"*" * size,
        "percent": b"%41" * (size // 3),
        "wide text": "\U0001f600".encode() * (size // 4),
        "equals": b"=" * size,
    }


WORDS: Final = Form(_words, _WORDS, _long_words)

_XML_PART: Final = re.compile(rb'"[^"]*"|<[^>]*>|[^<>"\s]+')


def _xml_parts(data: bytes) -> list[Part]:
    return [match.span() for match in _XML_PART.finditer(data)]


_XML_VALUES: Final = (
    b"", b'""', b'"0"', b'"-1"', b'"1"', b'"255"', b'"65536"', b'"2147483647"', b'"2147483648"', b'"4294967296"',
    b'"18446744073709551616"', b'"' + b"9" * 5_000 + b'"', b'"NaN"', b'"1e999"', b'"\xd9\xa3"', b'"char"', b'"uint64"',
    b'"double"', b'"constant"', b'"optional"', b'"int8"', b'"messageHeader"', b'"groupSizeEncoding"', b'"&#0;"',
    b'"&#xD800;"', b'"&amp;"', b'"&a;"', b"<a>", b"</a>", b"<a/>", b"<!--", b"<![CDATA[",
    b"<?xml version='1.0' encoding='utf-7'?>", b"<!DOCTYPE a [<!ENTITY a 'b'>]>", b"<field/>", b"<group>", b"</group>",
    b"<composite>", b"<ref/>", b'<type name="a"/>', b"xmlns:xi='http://www.w3.org/2001/XInclude'",
    b"<xi:include href='/etc/passwd'/>", b"\0", b"\xff\xfe", b"<", b'"',
)  # fmt: skip


def _entities(size: int) -> bytes:
    entities = b"".join(b'<!ENTITY e%d "%s">' % (one, b"&e%d;" % (one - 1) * 10) for one in range(1, 30))
    return b'<!DOCTYPE a [<!ENTITY e0 "x">' + entities + b"]><a>&e29;</a>" + b" " * size


def _long_xml(size: int) -> dict[str, bytes]:
    attributes = b" ".join(b"a%06d=''" % number for number in range(size // 11))
    return {
        "nested elements": b"<a>" * (size // 7) + b"</a>" * (size // 7),
        "elements": b"<a/>" * (size // 4),
        "fields": b'<field name="a" id="1" type="uint8"/>' * (size // 38),
        "types": b"".join(b'<type name="t%06d" primitiveType="int8"/>' % one for one in range(size // 44)),
        "attributes": b"<a " + attributes + b"/>",
        "attribute": b'<a b="' + b"a" * size + b'"/>',
        "quoted text": b'"' + b"a" * size + b'"',
        "quoted digits": b'"' + b"9" * size + b'"',
        "text": b"a" * size,
        "references of characters": b"&#65;" * (size // 5),
        "comments": b"<!---->" * (size // 7),
        "entities": _entities(size),
    }


XML: Final = Form(_xml_parts, _XML_VALUES, _long_xml)
