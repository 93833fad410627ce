"""Files for received transfers that are too large for memory, and for received files."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aeron_spark.errors import SetupError
from aeron_spark.protocol.message_types import Buffer
from aeron_spark.protocol.transfers import ReceivedTransfer, TransferStart

PREFIX = "aeron-spark-"


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file that the peer sent. It is removed after its listeners have returned; :meth:`keep` saves it.

    If a listener raised an error, the file stays, and the error listeners get its path.

    ``name`` is the peer's name of the file, without folders. Do not trust it as a path.
    """

    path: Path
    name: str
    size: int

    def keep(self, to: str | Path) -> Path:
        """Move the file to ``to``, a path, or an existing folder, in which it gets ``name``. Return its path."""
        target = Path(to)
        if target.is_dir():
            target = target / (os.path.basename(self.name) or "unnamed")
        return Path(shutil.move(self.path, target))


class SpillFile:
    """A file for the content of one transfer, with mode 0600 and a unique name. ``discard`` removes it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(prefix=PREFIX, dir=folder)
        self.path = Path(name)
        self._file = os.fdopen(number, "wb", buffering=0)

    def write(self, data: Buffer) -> None:
        """Append ``data``."""
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def close(self) -> Path:
        """Close the file, and return its path."""
        self._file.close()
        return self.path

    def discard(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)


def spilling_to(folder: Path) -> Callable[[TransferStart], SpillFile]:
    """Return a function that opens a spill file in ``folder`` for a transfer."""
    return lambda _: SpillFile(folder)


def content_of(received: ReceivedTransfer) -> Any:
    """Return a transfer's content as a buffer. A spill file is mapped into memory, and its name removed."""
    if not received.spilled:
        return memoryview(received.content)
    path = received.content
    try:
        if not received.start.total:
            return memoryview(b"")
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    finally:
        path.unlink(missing_ok=True)


def file_of(received: ReceivedTransfer, folder: Path) -> ReceivedFile:
    """Return the received file. Write it now if it was small enough for memory. Raises SetupError if that fails."""
    if received.spilled:
        return ReceivedFile(received.content, received.start.name, received.start.total)
    sink = spilling_to(folder)(received.start)
    try:
        sink.write(received.content)
    except OSError as error:
        sink.discard()
        raise SetupError(
            f"the received file {received.start.name} cannot be written to {folder}: {error.strerror}",
            remedy="Check the folder's space and permissions (option 'spillDir'). Then let the peer send it again.",
        ) from error
    return ReceivedFile(sink.close(), received.start.name, received.start.total)
