"""The grants of a server's clients, from a clients file that may change while the server runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aeron_spark.keys.clients_file import read_clients
from aeron_spark.protocol.grant_coverage import covers
from aeron_spark.protocol.grants import Grant


@dataclass(frozen=True, slots=True)
class ClientsChange:
    """The keys, by their names, that a new version of the file added, removed and changed.

    ``narrowed`` are those of ``changed`` that lost a grant or got a further condition. ``keys`` is the number of keys
    in the new version.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    narrowed: tuple[str, ...] = ()
    keys: int = 0


class ClientTable:
    """The grants in a clients file, in memory. ``grant`` is thread-safe; one thread at a time calls ``refresh``.

    Raises SetupError or DataFormatError if the file is missing or wrong. A later version that is missing or wrong
    changes nothing: the last good version stays. ``wall`` returns seconds since 1970.
    """

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        self.path = path
        self._wall = wall
        self._signature = _signature(path)  # before reading: a change meanwhile is found later
        self._grants = read_clients(path).grants(str(path))
        self.read_at = wall()
        """When the version in use was read, in seconds since 1970."""

    def __len__(self) -> int:
        return len(self._grants)

    def grant(self, client: bytes) -> Grant | None:
        """Return the grant of a public key; None if it is not authorised."""
        return self._grants.get(client)

    def grants(self) -> Mapping[bytes, Grant]:
        """Return the grants of all keys."""
        return self._grants

    def refresh(self, *, force: bool = False) -> ClientsChange | None:
        """Read the file again if it has changed, or with ``force``; return the change, or None for an unchanged file.

        Raises SetupError or DataFormatError, once per version of the file, if the file is missing or wrong.
        """
        signature = _signature(self.path)
        if signature == self._signature and not force:
            return None
        self._signature = signature
        before, after = self._grants, read_clients(self.path).grants(str(self.path))
        self._grants, self.read_at = after, self._wall()
        return _change(before, after)


def _change(before: Mapping[bytes, Grant], after: Mapping[bytes, Grant]) -> ClientsChange:
    changed = {key: grant for key, grant in after.items() if before.get(key, grant) != grant}
    return ClientsChange(
        added=tuple(grant.name for key, grant in after.items() if key not in before),
        removed=tuple(grant.name for key, grant in before.items() if key not in after),
        changed=tuple(grant.name for grant in changed.values()),
        narrowed=tuple(grant.name for key, grant in changed.items() if not covers(grant, before[key])),
        keys=len(after),
    )


def _signature(path: Path) -> tuple[int, ...] | None:
    """Return what differs between two versions of a file; None without the file.

    The path may be a symbolic link that is replaced, as Kubernetes does.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
