"""The handle of a process that uses a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from aeron_spark.node.locks import FileLock
from aeron_spark.node.settings import NodeSettings

CONTROL_CHANNEL: Final = "aeron:ipc?term-length=64k"  # the archive's default for clients of its driver
CONTROL_STREAM: Final = 10


@dataclass(frozen=True, slots=True)
class NodeHandle:
    """A use of a media driver, usually with an archive; the node does not stop while the handle is open.

    ``foreign``: another program started the driver. Then this package does not know its settings nor its archive
    (``archive_dir`` is empty, ``settings`` None). A handle does not survive a fork: it is closed in the child, which
    must call ``ensure`` itself.
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
    is_started_here: bool = False
    """Whether the call that returned this handle has started the node."""

    @property
    def closed(self) -> bool:
        """Whether the handle is closed."""
        return not self._users.is_acquired

    def close(self) -> None:
        """End the use. The node stops some time after its last user has closed its handle."""
        self._users.release(touch=True)

    def __enter__(self) -> NodeHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
