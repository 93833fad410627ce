"""The exception classes of this package, and their encoding for other processes.

    AeronSparkError
    ├── OptionError            an option or argument is wrong                        (fault: caller)
    ├── UsageError             a call that the object does not allow in its state    (fault: caller)
    │   └── EndedError         the object has ended; the same call can succeed on a new one
    ├── SetupError             this machine lacks a requirement                      (fault: machine)
    ├── InUseError             another process uses an exclusive resource            (fault: machine)
    ├── ConnectError           a driver, archive, subscriber or server is not reachable (fault: peer)
    ├── RefusedError           the server refused the request                        (fault: peer)
    │   └── SessionLost        the session cannot be resumed
    ├── RemoteError            a remote call failed at the peer; ``code`` classifies the failure
    ├── IdentityError          the peer failed to prove its identity                 (fault: peer)
    │   └── ServerKeyChanged   a server's key differs from its stored key
    ├── TamperedError          received bytes failed their authentication            (fault: data)
    ├── WaitTimeout            a wait reached its deadline                           (fault: peer)
    │   └── StillWorking       the peer has not finished the request yet
    ├── DataLossError          a wanted range is gone                                (fault: data)
    ├── DataFormatError        bytes are not in the expected format                  (fault: data)
    └── TransportError         Aeron failed                                          (fault: transport)

Each class has a ``fault``. Each instance has a text with a remedy, ``retriable`` (whether the same request can succeed
later) and ``reason`` (a short code for programs, or ""). ``REFUSALS`` has the reasons for which a server refuses, with
the retry advice that every caller follows. ``encode_error`` and ``decode_error`` are the only encoding of errors
between processes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeVar

Fault = Literal["caller", "machine", "peer", "data", "transport"]


class Retry(Enum):
    """When the same request can succeed after a server refused it."""

    SOON = "soon"
    """After a short pause: the server is busy or restarts."""
    WHEN_FREED = "when freed"
    """After another client has freed a limited resource of the server."""
    NEVER = "never"
    """Only after a person or a program has changed the cause."""


class Advice(NamedTuple):
    """When to retry after a refusal, and the remedy for the user."""

    retry: Retry
    remedy: str


_ALLOW_KEY: Final = "Send your public key (aeron-spark keys show) to the server's operator, who can authorise it."
_SAME_SECRET: Final = (
    "Give client and server the same shared secret, or none (option 'sharedSecretFile'). If they have that already, a "
    "packet was altered in transit."
)
_SAME_RELEASE: Final = "Use the same release of aeron-spark at client and server."

# Reason of a refusal -> advice. The reasons are the codes of protocol/handshake_payloads.py.
REFUSALS: Final[dict[str, Advice]] = {
    "full": Advice(Retry.WHEN_FREED, "Close unused connections, or raise the server's limit."),
    "address-limit": Advice(Retry.WHEN_FREED, "Close connections of this machine, or raise the server's limit."),
    "key-limit": Advice(
        Retry.WHEN_FREED, "Close connections that use your key, or ask the server's operator to raise its limit."
    ),
    "ids": Advice(Retry.WHEN_FREED, "Close unused connections, or give the server more ids or ports."),
    "rate": Advice(Retry.SOON, "Try again in a few seconds, and connect less often."),
    "pending": Advice(Retry.SOON, "Try again in a few seconds."),
    "shutdown": Advice(Retry.SOON, "Try again after the server has restarted."),
    "draining": Advice(Retry.SOON, "Try again after the server has restarted."),
    "timeout": Advice(Retry.SOON, "Try again. If this repeats, the server or the network is overloaded."),
    "server-error": Advice(
        Retry.SOON, "Try again. If this repeats, ask the server's operator for the error in the server's log."
    ),
    "key": Advice(Retry.NEVER, _ALLOW_KEY),
    "banned": Advice(Retry.NEVER, "Ask the server's operator why, and until when."),
    "kicked": Advice(Retry.SOON, "Connect again. If this repeats, ask the server's operator for the reason."),
    "memory": Advice(Retry.SOON, "Send smaller or fewer calls at a time, or ask the operator to raise memoryLimit."),
    "busy": Advice(Retry.SOON, "Call again when some of your calls have ended."),
    "stage-full": Advice(Retry.WHEN_FREED, "Commit smaller transactions, or fewer at once."),
    "disk-full": Advice(
        Retry.WHEN_FREED, "Ask the server's operator to free space, to purge streams, or to lower diskReserve."
    ),
    "limit": Advice(Retry.NEVER, "Use less of what the error names, or ask the server's operator to raise the limit."),
    "no-listener": Advice(Retry.NEVER, "Let the peer add a listener for messages of this class."),
    "listener-failed": Advice(Retry.NEVER, "Look for the error at the peer: in its log, or at its error listeners."),
    "ended": Advice(Retry.NEVER, "Write to another stream, or ask the server's operator to reopen this one."),
    "proof": Advice(Retry.NEVER, _SAME_SECRET),
    "tag": Advice(Retry.NEVER, "Use a tag that the server allows for your key."),
    "not-permitted": Advice(Retry.NEVER, "Ask the server's operator to permit your address, tag and key."),
    "version": Advice(Retry.NEVER, _SAME_RELEASE),
    "message": Advice(Retry.NEVER, _SAME_RELEASE),
    "schema": Advice(Retry.NEVER, "Register the same message types at client and server."),
    "session-lost": Advice(Retry.NEVER, "Connect again, and send the unacknowledged messages again."),
}


_E = TypeVar("_E", bound="AeronSparkError")


class AeronSparkError(Exception):
    """Base of every error of this package.

    ``what`` is the event and its cause. ``remedy`` is an instruction to the user. ``reason`` is a short code that a
    program can compare, or "".
    """

    call: str = ""
    """The id of the remote call that failed, under which the peer has logged it; or ""."""
    repeated: bool = False
    """Whether the request was repeated after an outage: its first try may have done what the error denies."""
    unconfirmed: tuple[object, ...] = ()
    """With ``Client.on_lost``: the messages that were sent in the lost session and not confirmed, in order."""
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
        """Return a copy of this error with another ``what``."""
        error = _rebuild(type(self), what)
        vars(error).update(vars(self), what=what)
        return error

    def __str__(self) -> str:
        text = f"{self.what}. {self.remedy}" if self.remedy else self.what
        return f"{text} (call {self.call} in the peer's log)" if self.call else text

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
    """A call that the object does not allow in its state, such as after its close or in a forked child."""

    fault = "caller"


class EndedError(UsageError):
    """The client, connection, bulk link, remote object, stage or server that a call uses has ended.

    The same call can succeed on a new object.
    """

    _class_retriable = True


class SetupError(AeronSparkError):
    """This machine lacks a requirement, or has too little of it: Java, jars, space, a private directory."""

    fault = "machine"


class InUseError(AeronSparkError):
    """Another process uses an exclusive resource: a store of streams, a port, a folder."""

    fault = "machine"


class ConnectError(AeronSparkError):
    """A media driver, archive, subscriber or server does not respond at its address."""

    fault = "peer"
    _class_retriable = True


class RefusedError(AeronSparkError):
    """The server refused the request. ``retry`` says when the same request can succeed."""

    fault = "peer"

    @property
    def retry(self) -> Retry:
        """The retry advice of ``REFUSALS`` for the reason; NEVER for an unknown reason."""
        advice = REFUSALS.get(self.reason)
        return Retry.NEVER if advice is None else advice.retry

    @property
    def retriable(self) -> bool:
        """Whether the same request can succeed later."""
        return self.retry is not Retry.NEVER


class SessionLost(RefusedError):
    """The session cannot be resumed: the peer has dropped it, or the outage was too long."""


class RemoteError(AeronSparkError):
    """A remote call failed at the peer. ``code`` is the peer's name for the class of failure.

    ``raised`` is the error that the remote method raised, if that is one of this package.
    """

    fault = "peer"

    def __init__(
        self,
        what: str,
        *,
        code: str = "RemoteError",
        remedy: str = "",
        reason: str = "",
        raised: AeronSparkError | None = None,
    ) -> None:
        super().__init__(what, remedy=remedy, reason=reason)
        self.code = code
        self.raised = raised

    @property
    def retriable(self) -> bool:
        """Whether the same request can succeed later."""
        return self.raised is not None and self.raised.retriable


class IdentityError(AeronSparkError):
    """The peer failed to prove its identity, or its identity has changed."""

    fault = "peer"


class ServerKeyChanged(IdentityError):
    """A server's key differs from the stored key of a known server; the stored key is unchanged."""


class TamperedError(AeronSparkError):
    """Bytes failed their authentication."""

    fault = "data"


class WaitTimeout(AeronSparkError, TimeoutError):
    """A wait reached its deadline; the text has the awaited event and the last state."""

    fault = "peer"
    _class_retriable = True


class StillWorking(WaitTimeout):
    """The peer has not finished the request yet. Repeat the request to get the result."""


class DataLossError(AeronSparkError):
    """A wanted range of a recording is gone: purged, truncated, deleted, replaced or damaged.

    With the reason "diverged" the store was restored from a copy without the range. A reader's error then has the
    ``positions`` at which reading can continue, by partition.
    """

    fault = "data"
    positions: Mapping[int, int] | None = None


TOO_LONG: Final = "too-long"  # reason of a DataFormatError


class DataFormatError(AeronSparkError):
    """Bytes are not in the expected format. With the reason "too-long" a value is longer than a message may be."""

    fault = "data"


class TransportError(AeronSparkError):
    """Aeron failed: the driver ended, the archive returned an error, or a publication was closed."""

    fault = "transport"
    _class_retriable = True


# The archive, the server or the connection was lost: the same call can succeed later, some on a new object.
OUTAGE: Final = (ConnectError, EndedError, SessionLost, TransportError, WaitTimeout)


def _classes() -> dict[str, type[AeronSparkError]]:
    return {
        cls.__name__: cls for cls in globals().values() if isinstance(cls, type) and issubclass(cls, AeronSparkError)
    }


# Code (the name of the class) -> error class.
ERROR_CLASSES: Final[dict[str, type[AeronSparkError]]] = _classes()
_FIELDS: Final = ("code", "what", "remedy", "reason")
_ELLIPSIS: Final = "..."


def code_of(error: AeronSparkError) -> str:
    """Return the code of the error's class, or of its nearest base class in this module."""
    return next(cls.__name__ for cls in type(error).__mro__ if ERROR_CLASSES.get(cls.__name__) is cls)


def encode_error(error: AeronSparkError, *, max_characters: int = 0) -> bytes:
    """Encode the error for another process as a JSON object of code, what, remedy and reason.

    With ``max_characters`` above 0 (at least 200), shorten ``what``, then ``remedy``, then ``reason`` to that length.
    """
    fields = dict(zip(_FIELDS, (code_of(error), str(error.what), str(error.remedy), str(error.reason)), strict=True))
    text = json.dumps(fields, ensure_ascii=False)
    for name in ("what", "remedy", "reason"):
        while 0 < max_characters < len(text) and fields[name]:
            # A removed character shortens the text by one character, or by more if JSON escapes it.
            length = len(fields[name].removesuffix(_ELLIPSIS)) - (len(text) - max_characters) - len(_ELLIPSIS)
            fields[name] = fields[name][:length] + _ELLIPSIS if length > 0 else ""
            text = json.dumps(fields, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def decode_error(data: bytes | memoryview) -> AeronSparkError:
    """Decode an error from the bytes of ``encode_error``. Raises DataFormatError for other bytes.

    An unknown code becomes AeronSparkError.
    """
    try:
        fields = json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise _not_encoded(str(error)) from None
    if not isinstance(fields, dict) or set(fields) != set(_FIELDS):
        raise _not_encoded(f"expected an object with {', '.join(_FIELDS)}")
    if not all(isinstance(value, str) for value in fields.values()):
        raise _not_encoded("a field is not a string")
    try:
        "".join(fields.values()).encode()
    except UnicodeEncodeError:  # the error could not be logged or printed
        raise _not_encoded("a field has half of a surrogate pair") from None
    cls = ERROR_CLASSES.get(fields["code"], AeronSparkError)
    return cls(fields["what"], remedy=fields["remedy"], reason=fields["reason"])


def _not_encoded(cause: str) -> DataFormatError:
    return DataFormatError(f"bytes are not an encoded error: {cause}", remedy=_SAME_RELEASE)
