"""Network namespaces made with the command ``ip``, and a check whether this machine supports them."""

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
    """A named network namespace; ``close`` removes it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = NAMED / name
        ip("netns", "add", name)
        try:
            self.set("net/ipv6/conf/default/accept_dad", 0)  # no other host can have the same address
            self.ip("link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    def ip(self, *arguments: str) -> None:
        """Run ``ip`` in the namespace."""
        ip("-netns", self.name, *arguments)

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that runs a program in the namespace; the process becomes the program."""
        return ["ip", "netns", "exec", self.name, *arguments]

    def run(self, work: Callable[[], T]) -> T:
        """Call ``work`` in a thread inside the namespace. Sockets that it opens stay in the namespace."""
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
        """Set a sysctl of the namespace, such as ``net/ipv4/ip_forward``."""
        self.run(lambda: Path("/proc/sys", key).write_text(str(value)))

    def is_up(self) -> bool:
        """Return whether all its devices are connected."""
        links = json.loads(ip("-netns", self.name, "-json", "link"))
        return all(link["operstate"] == "UP" for link in links if link["ifname"] != "lo")

    def received_bytes(self, device: str) -> int:
        """Return the bytes that a device has received, with headers."""

        def read() -> int:
            for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
                name, _, numbers = line.partition(":")
                if name.strip() == device:
                    return int(numbers.split()[0])
            raise LookupError(device)

        return self.run(read)

    def processes(self) -> list[int]:
        """Return the ids of the processes in the namespace."""
        found = []
        own_stat = os.stat(self.path)
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
            try:
                stat = os.stat(f"/proc/{pid}/ns/net")
            except OSError:  # the process has ended
                continue
            if (stat.st_dev, stat.st_ino) == (own_stat.st_dev, own_stat.st_ino):
                found.append(pid)
        return found

    def close(self) -> None:
        """Remove the namespace and its devices."""
        ip("netns", "delete", self.name)


def ip(*arguments: str) -> str:
    """Run ``ip`` and return its output. Raises OSError with its error text."""
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
    """Return the reason why this machine cannot make namespaces, or an empty text."""
    if not hasattr(_libc, "setns") or not Path("/proc/self/ns/net").exists():
        return "this system has no network namespaces"
    if os.geteuid():
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the command ip is not installed (Debian: apt-get install iproute2)"
    reason: list[str] = []

    def attempt() -> None:
        if _libc.unshare(CLONE_NEWNET):
            reason.append(f"a network namespace cannot be made: {os.strerror(ctypes.get_errno())}")
        elif not netfilter.supported():
            reason.append("this kernel has no nftables with masquerade")

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return "".join(reason)
