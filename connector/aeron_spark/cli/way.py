"""What commands that reach a stream have in common: which stream, which archive, which further options."""

from __future__ import annotations

import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

import click

from aeron_spark.cli.main import INTERRUPTED as INTERRUPTED
from aeron_spark.cli.output import aeron_dir_option
from aeron_spark.errors import AeronSparkError, OptionError

PATIENCE: Final = (
    1.0  # seconds after being asked to stop; several signals at once (of a terminal, of timeout(1)) are one
)
DIRECT: Final = ("channel", "streamId", "archive")
DIRECT_ONLY: Final = ("ack", "record")
OF_STREAMS: Final = ("payload", "writerId")  # options of a reader or a writer, and not of its connection

_F = TypeVar("_F", bound=Callable[..., Any])

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
channel_option = click.option("--channel", metavar="URI", help="The stream's Aeron channel, such as aeron:ipc.")
stream_id_option = click.option("--stream-id", metavar="N", help="The stream within the channel.")
server_option = click.option("--server", metavar="HOST:PORT", help="Through this secure server instead.")
identity_option = click.option(
    "--identity", metavar="FILE|env:NAME", help="With --server: this client's identity.  [default: this user's own]"
)
server_key_option = click.option(
    "--server-key", metavar="KEY", help="With --server: the only key it may have.  [default: that of the known servers]"
)
stream_option = click.option(
    "--stream", metavar="NAME", help="With --server: this stream of it. Without: messages from client to client."
)
_archive_option = click.option(
    "--archive", metavar="URI", help="An archive's control channel.  [default: this machine's own, started when absent]"
)
more_option = click.option(
    "--option",
    "more",
    metavar="NAME=VALUE",
    multiple=True,
    help="Another option of the connector, spelt as in docs/options.md; repeatable.",
)


def way_options(command: _F) -> _F:
    """Add the options that say how a stream is reached."""
    for option in (more_option, _archive_option, aeron_dir_option, stream_id_option, channel_option):
        command = option(command)
    return command


def server_options(command: _F) -> _F:
    """Add the options that name a server, and the keys of both ends."""
    for option in (server_key_option, identity_option, server_option):
        command = option(command)
    return command


def connector_options(more: tuple[str, ...], **named: str | None) -> dict[str, str]:
    """Return the options of the connector that a command line gives; raise OptionError where one is given twice.

    Names in ``more`` are read without regard to case; those in ``named`` are returned as spelt there.
    """
    given = {name: text for name, text in named.items() if text is not None}
    spelt = {name.lower(): name for name in named}
    for text in more:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"--option {text!r} has no '='", remedy="Write --option name=value.")
        name = spelt.setdefault(name.lower(), name)
        if name in given:
            raise OptionError(f"option {name!r} is given twice", remedy="Give it once.")
        given[name] = value
    return given


def way_given(way: Mapping[str, Any], **named: str | None) -> dict[str, str]:
    """Return the options of the connector that the flags of a way, and further ones, give; see above.

    Raises OptionError where the keys of a connection are given, and no server.
    """
    given = connector_options(
        way["more"],
        server=way.get("server"),
        stream=way.get("stream"),
        identity=way.get("identity"),
        serverKey=way.get("server_key"),
        channel=way["channel"],
        streamId=way["stream_id"],
        archive=way["archive"],
        aeronDir=way["aeron_dir"],
        **named,
    )
    if "server" not in given:
        for name, flag in (("identity", "--identity"), ("serverKey", "--server-key")):
            if name in given:
                raise OptionError(f"{flag} is for a connection with a server", remedy="Add --server.")
    return given


def client_arguments(given: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Take ``server`` out of the options; raise OptionError where the direct way is meant as well."""
    for name in DIRECT_ONLY:
        if name in given:
            raise OptionError(f"option {name!r} is for the direct way, without a server", remedy="Leave it out.")
    rest: dict[str, Any] = dict(given)
    address = rest.pop("server")
    for name in DIRECT:
        if name in rest:
            raise OptionError(
                f"a server and {name!r} are two ways to reach a stream", remedy="Give the one or the other."
            )
    return address, rest


def stream_arguments(given: Mapping[str, str]) -> tuple[str, str, dict[str, Any]]:
    """Take server and stream out of the options; raise OptionError for a wrong name, too."""
    address, rest = client_arguments(given)
    return address, stream_named(rest.pop("stream")), rest


def stream_named(name: str) -> str:
    """Return the name of a server's stream. Raises OptionError for a text that cannot be one."""
    from aeron_spark.options import values

    try:
        return values.stream_name(name)
    except ValueError as error:
        raise OptionError(f"a stream cannot be called {name[:160]!r}", remedy=f"Give {error}.") from None


def check_client(given: Mapping[str, str]) -> None:
    """Raise OptionError for a wrong option of a connection, before anything is started."""
    from aeron_spark.client.options import client_options

    if "stream" not in given:
        client_options(*client_arguments(given))
        return
    address, _, rest = stream_arguments(given)
    client_options(address, {name: text for name, text in rest.items() if name not in OF_STREAMS})


class OperationError(AeronSparkError):
    """The operation failed, though the command line can be right: a server or an archive refuses a name or a number."""


@contextmanager
def operation() -> Iterator[None]:
    """Run what a command does with a server, an archive or a driver.

    A name or number that those refuse is a failure (exit code 1). A wrong command line (2) is found before.
    """
    try:
        yield
    except OptionError as error:
        raise OperationError(error.what, remedy=error.remedy) from error


class StopRequest:
    """Tells whether a signal asked this process to stop.

    A command that connects, or waits for an answer, does not ask for it. So a signal raises KeyboardInterrupt where the
    main thread is, until the command calls ``begin``: its own loop asks from there on. A signal that comes more than
    ``patience_s`` seconds after the first one always raises.
    """

    def __init__(self, patience_s: float) -> None:
        self.begun = False
        self._patience_s = patience_s
        self._first: float | None = None  # when the first signal came

    def __call__(self) -> bool:
        return self._first is not None

    def begin(self) -> None:
        """Have the first signal only answered by this object from now on: a loop asks it."""
        self.begun = True

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take a signal, as its handler."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
            if self.begun:
                return
        elif now - self._first <= self._patience_s:
            return
        raise KeyboardInterrupt


@contextmanager
def interruption() -> Iterator[StopRequest]:
    """Give what tells whether SIGINT asked this process to stop. A second SIGINT stops at once."""
    with _handled(StopRequest(0.0), signal.SIGINT) as request:
        yield request


@contextmanager
def stopping() -> Iterator[StopRequest]:
    """Give what tells whether SIGINT or SIGTERM asked this process to stop. Asked again later, it stops where it is.

    The JVM of this process, which the first use of Aeron starts, leaves all signals to this process.
    """
    from aeron_spark.aeron import jvm

    jvm.keep_signals()
    with _handled(StopRequest(PATIENCE), signal.SIGINT, signal.SIGTERM) as request:
        yield request


@contextmanager
def _handled(request: StopRequest, *numbers: signal.Signals) -> Iterator[StopRequest]:
    before = [signal.getsignal(number) for number in numbers]
    for number in numbers:
        signal.signal(number, request.handle)
    try:
        yield request
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Say warnings of the connector as sentences."""

    def say(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
        click.echo(f"aeron-spark: warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)  # all of the connector's are of this kind
        warnings.showwarning = say
        yield


def needs_server(**given: object) -> None:
    """Raise OptionError where an option is given that only a stream of a server has."""
    for name, value in given.items():
        if value is not None:
            raise OptionError(
                f"--{name.replace('_', '-')} is for a stream of a server", remedy="Add --server and --stream."
            )


def needs_stream(options: Mapping[str, str]) -> None:
    """Raise OptionError, in the words of the command line, where no stream is named."""
    for name, option, example in (("channel", "--channel", "aeron:ipc"), ("streamId", "--stream-id", "1001")):
        if name not in options:
            raise OptionError(f"{option} is required", remedy=f"For example {option} {example}.")


def confirm(question: str, yes: bool, look: str = "") -> None:
    """Ask ``question`` on the terminal, unless ``yes``; end with exit code 1 where the answer is no."""
    needs_terminal(yes, look)
    if not yes:
        click.confirm(question, abort=True, err=True)


def needs_terminal(yes: bool, look: str) -> None:
    """Raise OptionError where a question has to be asked, and standard input is not a terminal.

    ``look`` says how to see first what would be deleted.
    """
    if not yes and not sys.stdin.isatty():
        raise OptionError(
            "confirmation is needed, and standard input is not a terminal", remedy=f"Add --yes. {look}".rstrip()
        )
