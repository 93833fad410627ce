"""Captures all packets of a network device in a namespace, in this process."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from tests.net.namespaces import Namespace

ETH_P_ALL: Final = 3
SO_RCVBUFFORCE: Final = 33
BUFFER_BYTES: Final = 64 * 1024 * 1024
PACKET_MAX: Final = 65_536


class Capture:
    """The packets that pass ``device`` in both directions during a ``with`` block."""

    def __init__(self, namespace: Namespace, device: str) -> None:
        self.packets: list[bytes] = []
        self._socket = namespace.run(lambda: self._open(device))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"capture of {device}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def count(self, content: bytes) -> int:
        """Return the number of packets that contain these bytes."""
        return sum(content in packet for packet in self.packets.copy())

    def wait_for(self, found: Callable[[bytes], bool], seconds: float) -> bool:
        """Wait for a packet for which ``found`` is true; return whether one was captured in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if any(found(packet) for packet in self.packets.copy()):
                return True
            time.sleep(0.02)
        return False

    @staticmethod
    def _open(device: str) -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        opened.bind((device, ETH_P_ALL))
        opened.settimeout(0.1)
        return opened

    def _read(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                self.packets.append(self._socket.recv(PACKET_MAX))
