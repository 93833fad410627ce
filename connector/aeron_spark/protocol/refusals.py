"""A refusal as a value: what a server answers somebody it does not let in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aeron_spark.errors import (
    REFUSALS,
    Advice,
    AeronSparkError,
    IdentityError,
    RefusedError,
    Retry,
    TamperedError,
)

_UNKNOWN: Final = Advice(Retry.NEVER, "Ask the server's operator.")


@dataclass(frozen=True, slots=True)
class Refusal:
    """``code`` and ``text`` go to the peer. ``cause``, where a function of the user's failed, is for our log alone."""

    code: str
    text: str
    cause: Exception | None = field(default=None, compare=False)

    @property
    def advice(self) -> Advice:
        """When the client can try again, and what its user can do."""
        return REFUSALS.get(self.code, _UNKNOWN)


def undecided(cause: Exception, text: str = "An error of the server's own came before its decision") -> Refusal:
    """Return the answer of a server that met ``cause`` before it could decide; the client tries again."""
    return Refusal("server-error", text, cause)


def may_retry(error: AeronSparkError, *, awaited: bool, proved: bool) -> bool:
    """Return whether a client makes another attempt after one that ended with ``error``.

    ``awaited``: a thread waits for the connection, and hears at once of what only another person or program can change.
    ``proved``: the refusal is authenticated as the server's. Without that a client that nobody waits for goes on, for
    anybody can send a refusal or a packet that fails its authentication.
    """
    match error:
        case IdentityError():
            return False
        case RefusedError():
            return error.retry is Retry.SOON or not (awaited or (proved and error.retry is Retry.NEVER))
        case TamperedError():
            return not awaited
        case _:
            return True
