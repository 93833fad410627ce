"""Parses, checks, changes and compares Aeron channel URIs.

Aeron ignores an unknown parameter and reads ``reliable=yes`` as false. The only symptom of a misspelt name is a stream
that never connects. Therefore names and values are checked here, before the start.

    [aeron-spy:]aeron:(ipc|udp)[?name=value[|name=value]...]

Two URIs carry the same Aeron stream if their ``identity`` is equal; a comparison of texts is wrong. For example, the
archive's own search compares substrings, and finds port 40123 in a search for 4012.

The alias of a recorded channel has a note of the recording's start, by whom and for which query:

    aeron:udp?endpoint=localhost:40123|alias=flights;aeron-spark(at=1795469531315,by=ann%40host,query=counts)

An archive stores the alias of a channel in its catalog and its list of recording subscriptions, but ignores it when it
compares channels. The note therefore needs no file, survives restarts and backups, and works with a remote archive.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote

from aeron_spark.errors import OptionError
from aeron_spark.transport.addresses import HostPort, canonical_host, canonical_interface, ip_of

TERM_MIN_BYTES: Final = 64 * 1024  # LogBufferDescriptor.TERM_MIN_LENGTH
TERM_MAX_BYTES: Final = 1024 * 1024 * 1024  # LogBufferDescriptor.TERM_MAX_LENGTH
MTU_MAX_BYTES: Final = 65_504  # Configuration.MAX_UDP_PAYLOAD_LENGTH, a UDP datagram less its headers, 32-byte aligned
FRAME_ALIGNMENT: Final = 32  # FrameDescriptor.FRAME_ALIGNMENT, also the length of a frame's header
MAX_RESEND_MAX: Final = 256  # Configuration.MAX_RESEND_MAX
CONTROL_MODES: Final = ("dynamic", "manual", "response")

_SIZE = re.compile(r"([0-9]{1,18})([kKmMgG]?)", re.ASCII)
_DURATION = re.compile(r"[0-9]{1,18}(?:[num]?s)?", re.ASCII | re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_size(text: str) -> int:
    """Return the bytes of a size such as ``4096``, ``64k``, ``16M`` or ``1g``. Raises ValueError with a phrase."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("is not a size such as 65536, 64k, 16m or 1g")
    return int(match[1]) * _UNITS[match[2].lower()]


def nearest(name: str) -> str | None:
    """Return the most similar parameter name, or None."""
    spelt = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name.strip()).replace("_", "-").lower()
    if spelt in PARAMETERS:
        return spelt
    if spelt in OTHER_NAMES:
        return OTHER_NAMES[spelt]
    close = difflib.get_close_matches(spelt, PARAMETERS, n=1, cutoff=0.6)
    return close[0] if close else None


@dataclass(frozen=True, slots=True)
class ParameterType:
    """The type of a parameter's value: the limits of a number, and the texts that a value must or may have.

    ``name`` is the type for other programs, which have a check for each name.
    """

    name: str
    verify: Callable[[str, ParameterType], None]
    low: int = 0
    high: int = 0
    words: tuple[str, ...] = ()

    def check(self, text: str) -> None:
        """Raise ValueError with a phrase for a text that is not such a value."""
        self.verify(text, self)


def _text(text: str, kind: ParameterType) -> None:
    """Accept any text; the channel checks addresses, together with other parameters."""


def _size(text: str, kind: ParameterType) -> None:
    parse_size(text)


def _term_length(text: str, kind: ParameterType) -> None:
    size = parse_size(text)
    if not TERM_MIN_BYTES <= size <= TERM_MAX_BYTES or size & (size - 1):
        raise ValueError("is not a power of two from 64k to 1g")


def _mtu(text: str, kind: ParameterType) -> None:
    size = parse_size(text)
    if not FRAME_ALIGNMENT < size <= MTU_MAX_BYTES or size % FRAME_ALIGNMENT:
        raise ValueError("is not a multiple of 32 from 64 to 65504")


def _duration(text: str, kind: ParameterType) -> None:
    if _DURATION.fullmatch(text) is None:
        raise ValueError("is not a duration such as 5s, 200ms, 10us or 1000ns")


def _flag(text: str, kind: ParameterType) -> None:
    if text not in ("true", "false"):
        raise ValueError("is neither true nor false")


def _word(text: str, kind: ParameterType) -> None:
    if text not in kind.words:
        raise ValueError(f"is not one of {', '.join(kind.words)}")


def _number(text: str, kind: ParameterType) -> None:
    if text in kind.words:
        return
    if _INTEGER.fullmatch(text) is None or not kind.low <= int(text) <= kind.high:
        alternatives = f", nor {' nor '.join(kind.words)}" if kind.words else ""
        raise ValueError(f"is not a number from {kind.low} to {kind.high}{alternatives}")


def _session_id(text: str, kind: ParameterType) -> None:
    if text.startswith("tag:"):
        _TAG.check(text.removeprefix("tag:"))
    else:
        _number(text, kind)


def _integer(low: int, high: int, *words: str) -> ParameterType:
    return ParameterType("number", _number, low, high, words)


_TEXT: Final = ParameterType("text", _text)
_SIZE_TYPE: Final = ParameterType("size", _size)
_DURATION_TYPE: Final = ParameterType("duration", _duration)
_FLAG: Final = ParameterType("true or false", _flag)
_INT32: Final = _integer(-(2**31), 2**31 - 1)
_TAG: Final = _integer(0, 2**63 - 1)
_TIMESTAMP_OFFSET: Final = _integer(0, MTU_MAX_BYTES, "reserved")

PARAMETERS: Final[dict[str, ParameterType]] = {
    "endpoint": _TEXT,
    "interface": _TEXT,
    "control": _TEXT,
    "control-mode": ParameterType("word", _word, words=CONTROL_MODES),
    "init-term-id": _INT32,
    "term-id": _INT32,
    "term-offset": _integer(0, TERM_MAX_BYTES),
    "term-length": ParameterType("term length", _term_length),
    "mtu": ParameterType("mtu", _mtu),
    "ttl": _integer(0, 255),
    "session-id": ParameterType("session id", _session_id, _INT32.low, _INT32.high),
    "stream-id": _INT32,
    "linger": _DURATION_TYPE,
    "reliable": _FLAG,
    "tags": _TEXT,
    "sparse": _FLAG,
    "alias": _TEXT,
    "eos": _FLAG,
    "tether": _FLAG,
    "group": ParameterType("word", _word, words=("true", "false", "infer")),
    "rejoin": _FLAG,
    "cc": _TEXT,
    "fc": _TEXT,
    "gtag": _integer(-(2**63), 2**63 - 1),
    "ssc": _FLAG,
    "so-sndbuf": _SIZE_TYPE,
    "so-rcvbuf": _SIZE_TYPE,
    "rcv-wnd": _SIZE_TYPE,
    "pub-wnd": _SIZE_TYPE,
    "media-rcv-ts-offset": _TIMESTAMP_OFFSET,
    "channel-rcv-ts-offset": _TIMESTAMP_OFFSET,
    "channel-snd-ts-offset": _TIMESTAMP_OFFSET,
    "response-endpoint": _TEXT,
    "response-correlation-id": _integer(-1, 2**63 - 1, "prototype"),
    "nak-delay": _DURATION_TYPE,
    "max-resend": _integer(1, MAX_RESEND_MAX),
    "untethered-window-limit-timeout": _DURATION_TYPE,
    "untethered-linger-timeout": _DURATION_TYPE,
    "untethered-resting-timeout": _DURATION_TYPE,
}
"""The parameter names of Aeron 1.51 (CommonContext), with the type of each value."""

# Names in Aeron's builder and documentation that differ from the parameter's name in a URI.
OTHER_NAMES: Final[dict[str, str]] = {
    "network-interface": "interface",
    "control-endpoint": "control",
    "mdc-control": "control",
    "initial-term-id": "init-term-id",
    "mtu-length": "mtu",
    "term-buffer-length": "term-length",
    "flow-control": "fc",
    "congestion-control": "cc",
    "group-tag": "gtag",
    "spies-simulate-connection": "ssc",
    "socket-sndbuf": "so-sndbuf",
    "socket-rcvbuf": "so-rcvbuf",
    "receiver-window": "rcv-wnd",
    "publication-window": "pub-wnd",
    "port": "endpoint",
    "host": "endpoint",
    "address": "endpoint",
}


MAX_URI_LENGTH: Final = 4095  # bytes, ChannelUri.MAX_URI_LENGTH
SPY_PREFIX: Final = "aeron-spy:"
_MEDIA: Final = ("ipc", "udp")
_EXAMPLE: Final = "Write a channel such as aeron:udp?endpoint=host:40123 or aeron:ipc"

Resolve = Callable[[str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """The parts of a channel that, with the stream id, identify an Aeron stream; without parameters for tuning."""

    media: str
    endpoint: str | None
    control: str | None
    control_mode: str | None
    interface: str | None


@dataclass(frozen=True, slots=True)
class ChannelUri:
    """A parsed channel. ``params`` has the order of the text; ``str()`` returns the text.

    A ``foreign`` channel was written by another program, such as the channel of a recording: its parameters are not
    checked.
    """

    media: str
    params: tuple[tuple[str, str], ...] = ()
    spy: bool = False
    foreign: bool = field(default=False, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str, *, foreign: bool = False) -> ChannelUri:
        """Parse and check ``text``. Raises OptionError; with ``foreign`` only for a text that is not a channel URI."""
        if len(text.encode("utf-8", "surrogatepass")) > MAX_URI_LENGTH:
            raise OptionError(
                f"the channel is longer than {MAX_URI_LENGTH} bytes, Aeron's limit",
                remedy="Shorten it, for instance its alias",
            )
        spy = text.startswith(SPY_PREFIX)
        scheme, colon, remaining = text.removeprefix(SPY_PREFIX).partition(":")
        if scheme != "aeron" or not colon:
            raise OptionError(f"the channel {text!r} does not begin with 'aeron:'", remedy=_EXAMPLE)
        media, question, query = remaining.partition("?")
        if media not in _MEDIA:
            close = difflib.get_close_matches(media.lower(), _MEDIA, n=1)
            suggestion = f"Did you mean 'aeron:{close[0]}'? " if close else ""
            raise OptionError(
                f"the channel {text!r} has the unknown medium {media!r}", remedy=f"{suggestion}{_EXAMPLE}"
            )
        channel = cls(media, _split(text, query) if question else (), spy, foreign)
        channel._check()
        return channel

    def __str__(self) -> str:
        query = "|".join(f"{name}={value}" for name, value in self.params)
        return f"{SPY_PREFIX if self.spy else ''}aeron:{self.media}{'?' if query else ''}{query}"

    def get(self, name: str) -> str | None:
        """Return the value of a parameter, or None. Of a repeated one, return the last value, as Aeron does."""
        return dict(self.params).get(name)

    def size(self, name: str) -> int | None:
        """Return the bytes of a parameter that is a size, or None. Raises OptionError for a foreign value."""
        value = self.get(name)
        try:
            return None if value is None else parse_size(value)
        except ValueError as error:
            raise OptionError(f"{name}={value} of the channel {self} {error}", remedy="Correct the channel") from None

    def with_params(self, **values: str | int | bool) -> ChannelUri:
        """Return this channel with parameters set; ``_`` in a name means ``-``. Existing ones keep their position.

        Raises OptionError like ``parse``.
        """
        added = {
            name.replace("_", "-"): str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in values.items()
        }
        for name, value in added.items():
            _check_parameter(name, value)
        return self._with({**dict(self.params), **added})

    def without(self, *names: str) -> ChannelUri:
        """Return this channel without these parameters, which it need not have. Raises OptionError like ``parse``."""
        removed = {name.replace("_", "-") for name in names}
        for name in sorted(removed.difference(dict(self.params))):
            _check_name(name)
        return self._with({name: value for name, value in self.params if name not in removed})

    @property
    def identity(self) -> StreamIdentity:
        """The identity of the channel's stream; a spy has the identity of the stream that it receives."""
        if self.media == "ipc":
            return StreamIdentity("ipc", None, None, None, None)
        control = self._canonical("control", _endpoint)
        # Before Aeron 1.43 a control address without a mode meant dynamic; old recordings may have such channels.
        mode = self.get("control-mode") or ("dynamic" if control else None)
        return StreamIdentity(
            "udp",
            self._canonical("endpoint", _endpoint),
            control,
            mode,
            self._canonical("interface", canonical_interface),
        )

    def matches(self, other: ChannelUri) -> bool:
        """Whether both channels have the same identity."""
        return self.identity == other.identity

    @property
    def is_multicast(self) -> bool:
        """Whether the endpoint is a multicast address."""
        return _is_multicast(self._host())

    def is_unicast_elsewhere(self, local_addresses: Iterable[str], resolve: Resolve | None = None) -> bool:
        """Whether this is a unicast stream to another host, which an archive on this machine cannot receive.

        ``local_addresses`` are the addresses of this machine, with or without loopback. A host name is local if it is
        among them, or if ``resolve`` returns one of them; without ``resolve`` each name is regarded as local. A spy
        receives from a publication of the same media driver, so it is always local.
        """
        host = self._host()
        if host is None or self.spy or _is_multicast(host):
            return False
        local = {_canonical_or_text(address) for address in local_addresses}
        if host in local:
            return False
        if ip_of(host) is not None:
            candidates = [host]
        else:
            candidates = [_canonical_or_text(found) for found in resolve(host)] if resolve else []
        return bool(candidates) and not any(one in local or _is_always_local(one) for one in candidates)

    def _host(self) -> str | None:
        if self.media == "ipc" or self.get("endpoint") is None:
            return None
        try:
            return HostPort.parse(self.get("endpoint") or "").host
        except ValueError:
            return None  # an invalid endpoint of a foreign channel

    def _canonical(self, name: str, canonical: Callable[[str], str | None]) -> str | None:
        value = self.get(name)
        if value is None:
            return None
        try:
            return canonical(value)
        except ValueError:
            return value.lower()  # an invalid address of a foreign channel, which equals itself

    def _with(self, params: dict[str, str]) -> ChannelUri:
        changed = ChannelUri(self.media, tuple(params.items()), self.spy, self.foreign)
        changed._check()
        return changed

    def _check(self) -> None:
        if self.foreign:
            return
        seen: set[str] = set()
        for name, value in self.params:
            _check_parameter(name, value)
            if name in seen:
                raise OptionError(f"the channel {self} gives the parameter {name!r} twice", remedy="Give it once")
            seen.add(name)
        self._check_term_position()
        if self.media == "udp":
            self._check_addresses()
            self._check_control()

    def _check_addresses(self) -> None:
        for name, canonical in (("endpoint", _endpoint), ("control", _endpoint), ("interface", canonical_interface)):
            value = self.get(name)
            if value is not None:
                try:
                    canonical(value)
                except ValueError as error:
                    raise OptionError(f"{name}={value} of the channel {self} {error}", remedy=_EXAMPLE) from None
        address = ip_of(self._host() or "")
        if address is not None and address.is_multicast and int(address) % 2 == 0:
            raise OptionError(
                f"the multicast address {address} of the channel {self} is even, expected an odd one: Aeron uses the"
                " next even address for control",
                remedy=f"Use {address + 1}, or another odd address",
            )

    def _check_control(self) -> None:
        mode, control = self.get("control-mode"), self.get("control")
        if control is not None and mode is None:
            raise OptionError(
                f"the channel {self} has control= without control-mode=, which Aeron refuses since 1.43",
                remedy="Add |control-mode=dynamic for multi-destination-cast (a subscriber, or a publisher that"
                " subscribers join), or |control-mode=response for a response channel",
            )
        if mode == "dynamic" and control is None:
            raise OptionError(
                f"the channel {self} has control-mode=dynamic without control=",
                remedy="Add |control=host:port, the address where the publisher listens for its subscribers",
            )
        if self.get("endpoint") is None and control is None and mode is None and self.get("tags") is None:
            raise OptionError(
                f"the channel {self} has no address to send to or to listen on", remedy="Add ?endpoint=host:port to it"
            )

    def _check_term_position(self) -> None:
        names = ("init-term-id", "term-id", "term-offset")
        missing = [name for name in names if self.get(name) is None]
        if missing and len(missing) < len(names):
            raise OptionError(
                f"the channel {self} gives an initial position without {' and '.join(missing)}",
                remedy=f"Give all of {', '.join(names)}, or none of them",
            )
        terms = int(self.get("term-id") or 0) - int(self.get("init-term-id") or 0)
        if terms % 2**32 >= 2**31:
            raise OptionError(
                f"the term-id of the channel {self} is before its init-term-id",
                remedy="Give the stream's initial term id; term ids count up from it and wrap at 2^31",
            )
        offset = int(self.get("term-offset") or 0)
        if offset % FRAME_ALIGNMENT or offset > (self.size("term-length") or offset):
            raise OptionError(
                f"term-offset={offset} of the channel {self} is not a multiple of {FRAME_ALIGNMENT} within its term",
                remedy="Use the end position of a frame",
            )


ARCHIVE_STREAMS: Final = ((ChannelUri("ipc"), 10), (ChannelUri("ipc"), 20))
"""Channel and stream id of an archive's local control requests and responses, by default."""


def same_stream(one: ChannelUri, other: ChannelUri) -> bool:
    """Whether two channels carry the same stream. For dynamic multi-destination-cast, compare the control addresses."""
    a, b = one.identity, other.identity
    if a.control is not None and a.control_mode == b.control_mode == "dynamic":
        return a.control == b.control
    return a == b


def refuse_archive_streams(
    channel: ChannelUri, stream_id: int, archive_streams: Iterable[tuple[ChannelUri, int]] = ()
) -> None:
    """Raise OptionError if this stream is a control stream of an archive.

    ``archive_streams`` are those of the used archives, in addition to the defaults. Other messages on such a stream
    would not fail, but slow down the archive without an error: to a fortieth in one measurement.
    """
    for control, control_stream_id in (*ARCHIVE_STREAMS, *archive_streams):
        if stream_id == control_stream_id and channel.matches(control):
            raise OptionError(
                f"stream {stream_id} of {channel} is a control stream of an Aeron Archive ({control}); data there would"
                " break the archive",
                remedy="Choose another streamId, for instance 1001",
            )


def _split(text: str, query: str) -> tuple[tuple[str, str], ...]:
    params = []
    for part in query.split("|"):
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise OptionError(
                f"the channel {text!r} has {part!r}, expected name=value",
                remedy="Write each parameter as name=value, with one '|' between two of them and none at the end",
            )
        params.append((name, value))
    return tuple(params)


def _check_name(name: str) -> None:
    if name not in PARAMETERS:
        close = nearest(name)
        raise OptionError(
            f"Aeron 1.51 has no channel parameter {name!r}",
            remedy=f"Did you mean {close!r}?" if close else f"Choose from {', '.join(sorted(PARAMETERS))}",
        )


def _check_parameter(name: str, value: str) -> None:
    _check_name(name)
    if not value or "|" in value:
        raise OptionError(
            f"the channel parameter {name!r} has the value {value!r}, expected a text without '|'",
            remedy="Give it a value, or omit the parameter",
        )
    try:
        PARAMETERS[name].check(value)
    except ValueError as error:
        raise OptionError(f"the channel parameter {name}={value} {error}", remedy="Correct or omit it") from None


def _endpoint(text: str) -> str:
    return str(HostPort.parse(text))


def _canonical_or_text(address: str) -> str:
    try:
        return canonical_host(address)
    except ValueError:
        return address.lower()


def _is_multicast(host: str | None) -> bool:
    address = ip_of(host or "")
    return address is not None and address.is_multicast


def _is_always_local(host: str) -> bool:
    address = ip_of(host)
    return address is not None and (address.is_loopback or address.is_unspecified)


MAX_TEXT: Final = 100  # characters of a name, because the channel must fit into a counter's label
_NOTE: Final = re.compile(
    r"(?P<own>.*?);?aeron-spark\(at=(?P<at>\d{1,15}),by=(?P<by>[^,()]*),query=(?P<query>[^,()]*)\)", re.DOTALL
)
_SERVER_STREAM: Final = re.compile(r"aeron-spark:(?P<stream>[^:]*):\d+:[0-9a-f]+")  # streams.partition names them so


@dataclass(frozen=True, slots=True)
class RecordingStart:
    """The start of a recording.

    ``at_ms``: milliseconds since the epoch. ``by``: user, host and program. ``query``: name of the query, or "".
    """

    at_ms: int
    by: str
    query: str = ""


def with_start(channel: str, start: RecordingStart) -> str:
    """Return ``channel`` with ``start`` in its alias, or unchanged if the URI would become too long."""
    parsed = ChannelUri.parse(without_start(channel), foreign=True)
    by, query = quote(start.by[:MAX_TEXT], safe="@/."), quote(start.query[:MAX_TEXT], safe="@/.")
    note = f"aeron-spark(at={start.at_ms},by={by},query={query})"
    own = parsed.get("alias")
    try:
        return str(ChannelUri.parse(str(parsed.with_params(alias=f"{own};{note}" if own else note)), foreign=True))
    except OptionError:
        return channel


def start_of(channel: str) -> RecordingStart | None:
    """Return the start in the alias of a recorded channel, or None without one."""
    found = _note(ChannelUri.parse(channel, foreign=True))
    return None if found is None else RecordingStart(int(found["at"]), unquote(found["by"]), unquote(found["query"]))


def without_start(channel: str) -> str:
    """Return the channel without the note of its recording's start."""
    parsed = ChannelUri.parse(channel, foreign=True)
    found = _note(parsed)
    if found is None:
        return channel
    without = parsed.without("alias")
    return str(without.with_params(alias=found["own"]) if found["own"] else without)


def server_stream(channel: str) -> str | None:
    """Return the name of the server's stream to which a recorded channel belongs, or None for another recording."""
    found = _SERVER_STREAM.fullmatch(ChannelUri.parse(channel, foreign=True).get("alias") or "")
    return None if found is None else found["stream"]


def _note(channel: ChannelUri) -> re.Match[str] | None:
    return _NOTE.fullmatch(channel.get("alias") or "")
