"""The findings of a check of a store with its archive. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from aeron_spark.text_safety import escape_text

DAMAGE: Final = "damage"
WARNING: Final = "warning"
MAX_CHARACTERS: Final = 10_000
RESTORE: Final = "Restore the store and the archive's folder from copies of one time"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. ``partition``, ``start`` and ``end`` are None if it is about the whole stream or partition.

    ``what`` is the fact and its cause, ``lost`` the rows that readers lose, or "".
    """

    level: Literal["damage", "warning"]
    stream: str
    what: str
    lost: str
    remedy: str
    partition: int | None = None
    start: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        where = f"stream {self.stream!r}" if self.stream else "store"
        if self.partition is not None:
            where = f"partition {self.partition} of {where}"
        if self.start is not None:
            where += f", position {self.start}" + (f" to {self.end}" if self.end is not None else "")
        parts = [f"{self.level}: {where}: {self.what}", self.lost, self.remedy]
        text = ". ".join(part.rstrip(".") for part in parts if part) + "."
        return escape_text(text, MAX_CHARACTERS)  # another person may have chosen names in the folders


def stream_damage(stream: str, what: str, remedy: str = "") -> Finding:
    """Return the finding that a stream cannot be used at all."""
    return Finding(DAMAGE, stream, what, "Readers lose all its rows", remedy or RESTORE)
