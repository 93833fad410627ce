"""The one tree of errors this package raises.

    AeronSparkError
    ├── OptionError            an option or argument is wrong                      (the caller's fault)
    ├── UsageError             an object is used in a way it does not allow        (the caller's fault)
    │   └── EndedError         the connection or object that a call uses has ended; a new one can take the call
    ├── SetupError             something this machine must have is missing         (the machine's fault)
    ├── InUseError             another process holds what this one needs alone     (the machine's fault)
    ├── ConnectError           nobody answers where somebody should                (the other side's fault)
    ├── RefusedError           the other side answered, and said no                (the other side's fault)
    │   └── SessionLost        it no longer knows the session that was to go on
    ├── RemoteError            a remote call failed at the other side; ``code`` says how
    ├── IdentityError          the other side is not who it claims to be           (the other side's fault)
    │   └── ServerKeyChanged   a server shows another key than the one it is known by
    ├── TamperedError          bytes arrived that nobody can have sent             (the data's fault)
    ├── WaitTimeout            a wait reached its deadline; it says which          (the other side's fault)
    │   └── StillWorking       the other side answered that it has not finished; ask it again
    ├── DataLossError          a wanted range is gone                              (the data's fault)
    ├── DataFormatError        bytes are not in the format they should be in       (the data's fault)
    └── TransportError         Aeron itself failed                                 (the transport's fault)

Each class says whose ``fault`` it is; each text ends with what to do. Each instance says whether the same request can
succeed later (``retriable``), and why it failed where a program may want to know (``reason``, a short code or ""). The
reasons for which a server refuses are in ``REFUSALS``, with the advice that every caller follows. ``encode_error`` and
``decode_error`` are the one form in which an error goes to another process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeVar

Fault = Literal["caller", "machine", "peer", "data", "transport"]


class Retry(Enum):
    """When the same request can succeed, after a server has refused it."""

    SOON = "soon"
    """After a short pause: the server is busy, or starts again."""
    WHEN_FREED = "when freed"
    """When another client has given back what the server has too little of."""
    NEVER = "never"
    """Not before a person or a program has changed something."""


class Advice(NamedTuple):
    """When to try again after a refusal, and the sentence that tells a user what to do."""

    retry: Retry
    remedy: str


_ALLOW_KEY: Final = "Show the server's operator your public key (aeron-spark keys show), to be allowed there."
_ONE_SECRET: Final = (
    "Give both sides the same shared secret, or none (option 'sharedSecretFile'); if they have that, a packet was "
    "changed on its way."
)
_SAME_RELEASE: Final = "Use the same release of aeron-spark on both sides."

# The reason of a refusal -> what to do. The codes are those of endpoint.payloads and docs/endpoint-protocol.md.
REFUSALS: Final[dict[str, Advice]] = {
    "full": Advice(Retry.WHEN_FREED, "Close connections that are not used, or raise the server's limit."),
    "address-limit": Advice(Retry.WHEN_FREED, "Close connections of this machine, or raise the server's limit."),
    "ids": Advice(Retry.WHEN_FREED, "Close connections that are not used, or give the server more ids or ports."),
    "rate": Advice(Retry.SOON, "Try again in a few seconds, and connect less often."),
    "pending": Advice(Retry.SOON, "Try again in a few seconds."),
    "shutdown": Advice(Retry.SOON, "Try again when the server has started again."),
    "timeout": Advice(Retry.SOON, "Try again; if this repeats, the server or the network is overloaded."),
    "server-error": Advice(
        Retry.SOON, "Try again; if this repeats, ask the server's operator: the server reports the error."
    ),
    "key": Advice(Retry.NEVER, _ALLOW_KEY),
    "proof": Advice(Retry.NEVER, _ONE_SECRET),
    "tag": Advice(Retry.NEVER, "Use a tag that the server allows to your key."),
    "not-permitted": Advice(Retry.NEVER, "Ask the server's operator to permit your address, tag and key."),
    "version": Advice(Retry.NEVER, _SAME_RELEASE),
    "message": Advice(Retry.NEVER, _SAME_RELEASE),
    "schema": Advice(Retry.NEVER, "Register the same message types on both sides."),
    "session-lost": Advice(Retry.NEVER, "Connect again, and send again what must arrive."),
}


_E = TypeVar("_E", bound="AeronSparkError")


class AeronSparkError(Exception):
    """Base of every error of this package.

    ``what`` says what happened and why. ``remedy`` is the sentence that says what to do. ``reason`` is a short code
    that a program can compare, "" where the class says enough.
    """

    fault: ClassVar[Fault] = "transport"
    _class_retriable: ClassVar[bool] = False

    def __init__(self, what: str, *, remedy: str = "", reason: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.reason = reason

    @property
    def retriable(self) -> bool:
        """Whether the same request can succeed later."""
        return self._class_retriable

    def with_what(self: _E, what: str) -> _E:
        """Return a new error that says ``what``, and is like this one otherwise."""
        error = _rebuild(type(self), what)
        vars(error).update(vars(self), what=what)
        return error

    def __str__(self) -> str:
        return f"{self.what}. {self.remedy}" if self.remedy else self.what

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles exceptions between processes; keyword-only arguments would be lost without this.
        return _rebuild, (type(self), self.what), vars(self)


def _rebuild(cls: type[_E], what: str) -> _E:
    error = cls.__new__(cls)
    error.args = (what,)
    return error


class OptionError(AeronSparkError, ValueError):
    """An option or argument is unknown, contradictory, out of range or missing."""

    fault = "caller"


class UsageError(AeronSparkError, RuntimeError):
    """An object is used in a way it does not allow, such as after its close or in a forked child."""

    fault = "caller"


class EndedError(UsageError):
    """The client, connection, branch, remote object, stage or server that a call uses has ended.

    The same call can succeed on a new one.
    """

    _class_retriable = True


class SetupError(AeronSparkError):
    """Something this machine must have is missing or too small: Java, jars, space, a directory of one's own."""

    fault = "machine"


class InUseError(AeronSparkError):
    """Another process holds what this one needs for itself: a store of streams, a port, a folder."""

    fault = "machine"


class ConnectError(AeronSparkError):
    """Nobody answers where a media driver, an archive, a subscriber or a server should be."""

    fault = "peer"
    _class_retriable = True


class RefusedError(AeronSparkError):
    """The other side answered and refused. ``retry`` says when the same request can succeed."""

    fault = "peer"

    @property
    def retry(self) -> Retry:
        """What ``REFUSALS`` advises for the reason; NEVER for a reason that is not there."""
        advice = REFUSALS.get(self.reason)
        return Retry.NEVER if advice is None else advice.retry

    @property
    def retriable(self) -> bool:
        """Whether the same request can succeed later."""
        return self.retry is not Retry.NEVER


class SessionLost(RefusedError):
    """The other side no longer knows the session that was to go on, or it was away for too long."""


class RemoteError(AeronSparkError):
    """A remote call failed at the other side. ``code`` is the kind of failure as that side named it.

    ``raised`` is the error that the method raised there, where it was one of this package's.
    """

    fault = "peer"

    def __init__(
        self, what: str, *, code: str = "RemoteError", remedy: str = "", reason: str = "",
        raised: AeronSparkError | None = None,
    ) -> None:  # fmt: skip
        super().__init__(what, remedy=remedy, reason=reason)
        self.code = code
        self.raised = raised

    @property
    def retriable(self) -> bool:
        """Whether the same request can succeed later."""
        return self.raised is not None and self.raised.retriable


class IdentityError(AeronSparkError):
    """The other side is not who it claims to be, or not who it was."""

    fault = "peer"


class ServerKeyChanged(IdentityError):
    """A server shows another key than the one it is known by; what is known of it was left untouched."""


class TamperedError(AeronSparkError):
    """Bytes failed their authentication."""

    fault = "data"


class WaitTimeout(AeronSparkError, TimeoutError):
    """A wait reached its deadline; the text names what was waited for and the state it was in."""

    fault = "peer"
    _class_retriable = True


class StillWorking(WaitTimeout):
    """The other side answered: it works on the request and has not finished. Repeat the request to learn the result."""


class DataLossError(AeronSparkError):
    """A wanted range of a recording is gone: purged, truncated, deleted or replaced.

    With the reason "diverged" the store was restored from a copy that does not have it; then ``positions`` of a reader
    are those from which it can read on, by partition.
    """

    fault = "data"
    positions: Mapping[int, int] | None = None


class DataFormatError(AeronSparkError):
    """Bytes are not in the format the reader was told to expect."""

    fault = "data"


class TransportError(AeronSparkError):
    """Aeron failed: the driver died, the archive answered with an error, a publication was closed."""

    fault = "transport"
    _class_retriable = True


def _classes() -> dict[str, type[AeronSparkError]]:
    return {
        cls.__name__: cls for cls in globals().values() if isinstance(cls, type) and issubclass(cls, AeronSparkError)
    }


# The code of an error class, which is its name -> the class.
ERROR_CLASSES: Final[dict[str, type[AeronSparkError]]] = _classes()
_FIELDS: Final = ("code", "what", "remedy", "reason")
_CUT: Final = "..."


def code_of(error: AeronSparkError) -> str:
    """Return the code of the error's class, or of its nearest base that this module has."""
    return next(cls.__name__ for cls in type(error).__mro__ if ERROR_CLASSES.get(cls.__name__) is cls)


def encode_error(error: AeronSparkError, *, max_characters: int = 0) -> bytes:
    """Encode the error for another process: a JSON object of code, what, remedy and reason.

    With ``max_characters`` above 0 (at least 200) ``what``, then ``remedy`` is shortened until the text is that short.
    """
    fields = dict(zip(_FIELDS, (code_of(error), str(error.what), str(error.remedy), str(error.reason)), strict=True))
    text = json.dumps(fields, ensure_ascii=False)
    for name in ("what", "remedy", "reason"):
        while 0 < max_characters < len(text) and fields[name]:
            # a character is one in the text, or an escape of several: cutting as many as are too many is enough
            kept = len(fields[name].removesuffix(_CUT)) - (len(text) - max_characters) - len(_CUT)
            fields[name] = fields[name][:kept] + _CUT if kept > 0 else ""
            text = json.dumps(fields, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def decode_error(data: bytes | memoryview) -> AeronSparkError:
    """Return the error that ``encode_error`` encoded. Raises DataFormatError for other bytes.

    A code that this release does not know becomes AeronSparkError.
    """
    try:
        fields = json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise _not_encoded(str(error)) from None
    if not isinstance(fields, dict) or set(fields) != set(_FIELDS):
        raise _not_encoded(f"it is not an object of {', '.join(_FIELDS)}")
    if not all(isinstance(value, str) for value in fields.values()):
        raise _not_encoded("a field is not a string")
    cls = ERROR_CLASSES.get(fields["code"], AeronSparkError)
    return cls(fields["what"], remedy=fields["remedy"], reason=fields["reason"])


def _not_encoded(why: str) -> DataFormatError:
    return DataFormatError(f"these bytes are not an encoded error: {why}", remedy=_SAME_RELEASE)
