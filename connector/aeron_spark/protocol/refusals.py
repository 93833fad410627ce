"""A server's negative response to a handshake, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
class ReachedLimit:
    """The limit for which a server refuses: the option that sets it, and its value.

    ``key_option`` is the option of a key's line or role in the clients file that replaces the server's ``option``, and
    ``is_own`` whether it does so for this key.
    """

    option: str
    value: float
    key_option: str = ""
    is_own: bool = False

    @property
    def setting(self) -> str:
        """The option that sets the limit for this client."""
        return self.key_option if self.is_own else self.option

    @property
    def origin(self) -> str:
        """The options that set the limit, as a phrase for the client."""
        if self.is_own:
            return f"{self.key_option} of your key in the server's clients file"
        server = f"option {self.option} of the server"
        return f"{server}, or {self.key_option} of your key in its clients file" if self.key_option else server


@dataclass(frozen=True, slots=True)
class Refusal:
    """A negative response: ``code`` and ``text`` are sent to the client, and of ``limit`` as much as it may learn.

    ``cause`` is the error that a function of the program raised. It is reported on the server, and not sent.
    """

    code: str
    text: str
    cause: Exception | None = field(default=None, compare=False)
    limit: ReachedLimit | None = field(default=None, compare=False)

    @property
    def advice(self) -> Advice:
        """When the client can try again, and what its user can do."""
        return REFUSALS.get(self.code, _UNKNOWN)

    def at(self, limit: ReachedLimit) -> Refusal:
        """Return this refusal with the limit that was reached."""
        return replace(self, limit=limit)

    @property
    def text_for_unauthenticated(self) -> str:
        """The text for a sender that has not proved its key: it names the option of the limit, without the value."""
        return self.text if self.limit is None else f"{self.text} ({self.limit.origin})"

    @property
    def text_for_client(self) -> str:
        """The text for a client that has proved its key."""
        if self.limit is None:
            return self.text
        return f"{self.text}: {self.limit.value} is the limit ({self.limit.origin})"


def undecided(cause: Exception, text: str = "The server failed before its decision") -> Refusal:
    """Return the refusal of a server that failed with ``cause`` before its decision. The client tries again."""
    return Refusal("server-error", text, cause)


def refusal_of(error: Exception, text: str) -> Refusal:
    """Return the refusal that a RefusedError names, and for any other error the one of ``undecided``."""
    return Refusal(error.reason, error.what) if isinstance(error, RefusedError) else undecided(error, text)


def may_retry(error: AeronSparkError, *, is_awaited: bool, is_authenticated: bool) -> bool:
    """Return whether the client makes another attempt after one that ended with ``error``.

    ``is_awaited``: a thread waits for the connection. It gets an error at once if only another person or program can
    remove the cause. ``is_authenticated``: the server has proved that it sent the refusal. Any host can forge a hint or
    a packet that fails its authentication, so these do not stop the attempts of a client whose connection no thread
    awaits.
    """
    match error:
        case IdentityError():
            return False
        case RefusedError():
            return error.retry is Retry.SOON or not (is_awaited or (is_authenticated and error.retry is Retry.NEVER))
        case TamperedError():
            return not is_awaited
        case _:
            return True
