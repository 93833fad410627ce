"""The one tree of errors this package raises.

    AeronSparkError
    ├── OptionError            an option or argument is wrong                      (the caller's fault)
    ├── UsageError             an object is used in a way it does not allow        (the caller's fault)
    ├── SetupError             something this machine must have is missing         (the machine's fault)
    ├── ConnectError           nobody answers where somebody should                (the other side's fault)
    ├── RefusedError           the other side answered, and said no                (the other side's fault)
    │   └── SessionLost        it no longer knows the session that was to go on
    ├── RemoteError            a remote call failed at the other side; ``code`` says how
    ├── IdentityError          the other side is not who it claims to be           (the other side's fault)
    │   └── ServerKeyChanged   a server shows another key than the one it is known by
    ├── TamperedError          bytes arrived that nobody can have sent             (the data's fault)
    ├── WaitTimeout            a wait reached its deadline; it says which          (the other side's fault)
    ├── DataLossError          a wanted range is gone                              (the data's fault)
    ├── DataFormatError        bytes are not in the format they should be in       (the data's fault)
    └── TransportError         Aeron itself failed                                 (the transport's fault)

Each class says whose ``fault`` it is and whether trying again can help (``retriable``); each text ends with what to do.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Fault = Literal["caller", "machine", "peer", "data", "transport"]


class AeronSparkError(Exception):
    """Base of every error of this package. ``remedy`` is the sentence that says what to do."""

    fault: ClassVar[Fault] = "transport"
    retriable: ClassVar[bool] = False

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}. {self.remedy}" if self.remedy else self.what

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles exceptions between processes; keyword-only arguments would be lost without this.
        return _rebuild, (type(self), self.what, self.remedy)


def _rebuild(cls: type[AeronSparkError], what: str, remedy: str) -> AeronSparkError:
    return cls(what, remedy=remedy)


class OptionError(AeronSparkError, ValueError):
    """An option or argument is unknown, contradictory, out of range or missing."""

    fault = "caller"


class UsageError(AeronSparkError, RuntimeError):
    """An object is used in a way it does not allow, such as after its close or in a forked child."""

    fault = "caller"


class SetupError(AeronSparkError):
    """Something this machine must have is missing or too small: Java, jars, space, a directory of one's own."""

    fault = "machine"


class ConnectError(AeronSparkError):
    """Nobody answers where a media driver, an archive, a subscriber or a server should be."""

    fault = "peer"
    retriable = True


class RefusedError(AeronSparkError):
    """The other side answered and refused; the text carries its reason."""

    fault = "peer"


class SessionLost(RefusedError):
    """The other side no longer knows the session that was to go on, or it was away for too long."""


class RemoteError(AeronSparkError):
    """A remote call failed at the other side. ``code`` is the kind of failure as that side named it."""

    fault = "peer"

    def __init__(self, what: str, *, code: str = "RemoteError", remedy: str = "") -> None:
        super().__init__(what, remedy=remedy)
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_remote, (self.what, self.code, self.remedy)


def _rebuild_remote(what: str, code: str, remedy: str) -> RemoteError:
    return RemoteError(what, code=code, remedy=remedy)


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
    retriable = True


class DataLossError(AeronSparkError):
    """A wanted range of a recording is gone: purged, truncated, deleted or replaced."""

    fault = "data"


class DataFormatError(AeronSparkError):
    """Bytes are not in the format the reader was told to expect."""

    fault = "data"


class TransportError(AeronSparkError):
    """Aeron failed: the driver died, the archive answered with an error, a publication was closed."""

    fault = "transport"
    retriable = True
