"""A refusal as a value: what a server answers somebody it does not let in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

PASSING: Final = frozenset({"rate", "pending", "shutdown", "timeout"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """``code`` and ``text`` go to the peer. ``cause``, where a function of the user's failed, is for our log alone."""

    code: str
    text: str
    cause: Exception | None = field(default=None, compare=False)

    @property
    def passing(self) -> bool:
        """Whether who comes again a little later may be let in."""
        return self.code in PASSING
