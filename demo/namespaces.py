"""Network namespaces, by the command ``ip``, and what runs in them; whether this machine can have any."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from demo import netfilter

T = TypeVar("T")

NAMED: Final = Path("/run/netns")
CLONE_NEWNET: Final = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """A network namespace with a name of its own; ``close`` removes it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = NAMED / name
        ip("netns", "add", name)
        try:
            self.set("net/ipv6/conf/default/accept_dad", 0)  # nobody else is here to have an address, too
            self.ip("link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    def ip(self, *arguments: str) -> None:
        """Run ``ip`` in it."""
        ip("-netns", self.name, *arguments)

    def command(self, *arguments: str) -> list[str]:
        """What runs a program in it; the process is the program's own."""
        return ["ip", "netns", "exec", self.name, *arguments]

    def run(self, work: Callable[[], T]) -> T:
        """Do ``work`` in it, on a thread that ends with it; sockets opened there stay in the namespace."""
        result: list[T] = []
        raised: list[BaseException] = []

        def enter() -> None:
            try:
                with self.path.open("rb") as file:
                    enter_namespace(file.fileno())
                result.append(work())
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=enter, name=f"in {self.name}")
        thread.start()
        thread.join()
        if raised:
            raise raised[0]
        return result[0]

    def set(self, key: str, value: object) -> None:
        """Set a sysctl of it, such as ``net/ipv4/ip_forward``."""
        self.run(lambda: Path("/proc/sys", key).write_text(str(value)))

    def is_up(self) -> bool:
        """Whether every device of it has noticed that it is connected."""
        links = json.loads(ip("-netns", self.name, "-json", "link"))
        return all(link["operstate"] == "UP" for link in links if link["ifname"] != "lo")

    def received_bytes(self, device: str) -> int:
        """Bytes that its device has received, headers included."""

        def read() -> int:
            for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
                name, _, numbers = line.partition(":")
                if name.strip() == device:
                    return int(numbers.split()[0])
            raise LookupError(device)

        return self.run(read)

    def processes(self) -> list[int]:
        """Who runs in it."""
        found = []
        mine = os.stat(self.path)
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
            try:
                theirs = os.stat(f"/proc/{pid}/ns/net")
            except OSError:  # gone meanwhile
                continue
            if (theirs.st_dev, theirs.st_ino) == (mine.st_dev, mine.st_ino):
                found.append(pid)
        return found

    def close(self) -> None:
        """Remove it, and its devices with it."""
        ip("netns", "delete", self.name)


def ip(*arguments: str) -> str:
    """Run ``ip`` and return what it says; what it complains of is raised."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def enter_namespace(descriptor: int) -> None:
    """Move this thread into a network namespace."""
    if _libc.setns(descriptor, CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def why_not() -> str:
    """Why this machine can make no such namespaces, or an empty text."""
    if not hasattr(_libc, "setns") or not Path("/proc/self/ns/net").exists():
        return "this system has no network namespaces"
    if os.geteuid():
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no ip (Debian: apt-get install iproute2)"
    reason: list[str] = []

    def attempt() -> None:
        if _libc.unshare(CLONE_NEWNET):
            reason.append(f"no network namespace can be made: {os.strerror(ctypes.get_errno())}")
        elif not netfilter.supported():
            reason.append("this kernel has no nftables with masquerade")

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return "".join(reason)
