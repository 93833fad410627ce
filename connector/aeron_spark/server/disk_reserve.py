"""The part of its disks that a server leaves free: below it, the server is not ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aeron_spark.errors import REFUSALS, RefusedError
from aeron_spark.node.settings import MIB
from aeron_spark.node.space import Space, space_of

OPTION: Final = "diskReserve"


class DiskReserve:
    """Measures the file systems of a server's folders. Thread-safe.

    ``folders`` returns the folders by name of their volume, such as "store". ``reserve`` returns the bytes that must be
    free on each; 0 means no reserve. A measurement is one system call for each folder.
    """

    def __init__(
        self, folders: Callable[[], Mapping[str, Path]], reserve: Callable[[], int],
        measure: Callable[[Path], Space] = space_of,
    ) -> None:  # fmt: skip
        self._reserve: Final = reserve
        self._folders: Final = folders
        self._measure: Final = measure

    @property
    def reserve_bytes(self) -> int:
        """The bytes that must be free on each volume."""
        return self._reserve()

    def volumes(self) -> dict[str, Space]:
        """Return the free and total bytes of each volume, by name."""
        return {name: self._measure(folder) for name, folder in self._folders().items()}

    def problem(self) -> str:
        """Return a text of the volume that has too few free bytes, or ""."""
        for space in self.volumes().values():
            if space.free < self.reserve_bytes:
                return (
                    f"{space.path} has {space.free / MIB:.0f} MiB free, less than the reserve of "
                    f"{self.reserve_bytes / MIB:.0f} MiB ({OPTION})"
                )
        return ""

    def refusal(self) -> RefusedError | None:
        """Return why nothing may be written now, or None. Reading, purging and deleting continue."""
        problem = self.problem()
        return None if not problem else RefusedError(problem, remedy=REFUSALS["disk-full"].remedy, reason="disk-full")
