"""``aeron_spark.connect``: makes a client and connects it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from aeron_spark.client.client import Client
from aeron_spark.connection.connection import Connection
from aeron_spark.protocol.access import PeerStore

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aeron_spark.options.keywords import ClientOptions

MIN_CONNECT_S: Final = 0.1  # for the handshake, after a start of the media driver that took nearly all of the timeout


def connect(
    address: str = "",
    *,
    store: PeerStore | None = None,
    connection_class: type[Connection] = Connection,
    timeout: float | None = None,
    wait: bool = True,
    **options: Unpack[ClientOptions],
) -> Client:
    """Connect to the server at ``address`` (``host:port``, ``host:port:control``, or ``ipc:``) and return the client.

    To register listeners before connecting, create the client with ``Client.to(address)``, and call its ``connect``.

    ``options`` are those of docs/options.md, written as there or with underscores: ``identity``, the file of the
    client's key or ``env:NAME`` (by default the user's own key, which is made at its first use), ``tag``,
    ``server_key``. If the server also listens over this machine's shared memory, the client connects there, unless
    ``ipc='never'``.

    ``wait=False`` returns at once, with a client that tries to connect until it is closed. It is for a program that
    writes through a buffer (:meth:`Client.writer`) and whose server may be down; ``client.connect(seconds)`` waits
    later. A thread of the client then starts this machine's media driver. If the machine cannot run one, the client
    stops with the error (``client.error``, ``on_stopped``).

    ``timeout`` is in seconds. It includes the start of this machine's media driver, which has ten minutes without a
    timeout. A slow start continues after the timeout, and the next call waits for it. With 0 the client tries until it
    is closed.

    Raises OptionError for a wrong argument, RefusedError with the server's reason, IdentityError for a wrong key, and
    ConnectError or WaitTimeout if no server responds.
    """
    from aeron_spark.client.aeron_dialer import make_runner

    deadline = time.monotonic() + timeout if timeout else None
    client = Client(make_runner(address, store, connection_class, options, deadline, opens=wait))
    _open(client, timeout, deadline, wait=wait)
    return client


def connect_for_pool(
    address: str, timeout: float, is_in_use: Callable[[], bool], on_unused: Callable[[Client], object],
    options: Mapping[str, object],
) -> Client:  # fmt: skip
    """Connect as :func:`connect` does, and connect again after a loss only while ``is_in_use()``.

    A client that loses its link without use ends its session and stops. ``on_unused(client)`` is then called on a
    thread of the client, and may close it. The event loop calls ``is_in_use``, which must not wait.
    """
    from aeron_spark.client.aeron_dialer import make_runner

    deadline = time.monotonic() + timeout if timeout else None
    runner = make_runner(address, None, Connection, options, deadline)
    client = Client(runner)
    _open(client, timeout, deadline, wait=True)
    runner.reconnect_while(is_in_use, partial(on_unused, client))
    return client


def _open(client: Client, timeout: float | None, deadline: float | None, *, wait: bool) -> None:
    """Connect a client, or begin to; close it if that fails."""
    try:
        if wait:
            client.connect(timeout if deadline is None else max(MIN_CONNECT_S, deadline - time.monotonic()))
        else:
            client.begin_connecting()
    except BaseException:
        client.close()
        raise
