"""What a process holds while it uses a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from aeron_spark.node.locks import FileLock
from aeron_spark.node.settings import NodeSettings

CONTROL_CHANNEL: Final = "aeron:ipc?term-length=64k"  # the archive's own default for clients of its driver
CONTROL_STREAM: Final = 10


@dataclass(frozen=True, slots=True)
class NodeHandle:
    """A media driver, and as a rule its archive, that stays while this handle is open.

    ``foreign`` is a driver that somebody else runs: it is used as it is, and this package knows neither its settings
    nor whether it has an archive (``archive_dir`` is empty, ``settings`` None). A handle does not survive a fork: the
    child finds it closed, and asks for its own.
    """

    aeron_dir: str
    pid: int
    started: float  # seconds since the epoch
    foreign: bool
    archive_dir: str
    archive_id: int
    settings: NodeSettings | None
    warning: str
    _users: FileLock = field(repr=False, compare=False)

    control_channel: str = CONTROL_CHANNEL
    control_stream: int = CONTROL_STREAM

    @property
    def closed(self) -> bool:
        """Whether this handle holds the node no more."""
        return not self._users.held

    def close(self) -> None:
        """Let the node go; it stops some time after the last of its users has."""
        if self._users.held:
            self._users.touch()
            self._users.release()

    def __enter__(self) -> NodeHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
