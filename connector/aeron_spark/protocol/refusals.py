"""A refusal as a value: what a server answers somebody it does not let in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aeron_spark.errors import REFUSALS, Advice, Retry

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
