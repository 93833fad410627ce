"""What commands that reach a stream have in common: which stream, which archive, which further options."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

import click

from aeron_spark.cli.output import aeron_dir_option
from aeron_spark.errors import OptionError

PATIENCE: Final = (
    1.0  # seconds after being asked to stop; several signals at once (of a terminal, of timeout(1)) are one
)
INTERRUPTED: Final = 130  # as a shell reports a program that SIGINT ended

_F = TypeVar("_F", bound=Callable[..., Any])

channel_option = click.option("--channel", metavar="URI", help="The stream's Aeron channel, such as aeron:ipc.")
stream_id_option = click.option("--stream-id", metavar="N", help="The stream within the channel.")
server_option = click.option("--server", metavar="HOST:PORT", help="Through this secure server instead.")
stream_option = click.option(
    "--stream", metavar="NAME", help="With --server: this stream of it. Without: messages from client to client."
)
_archive_option = click.option(
    "--archive", metavar="URI", help="An archive's control channel.  [default: this machine's own, started when absent]"
)
_more_option = click.option(
    "--option",
    "more",
    metavar="NAME=VALUE",
    multiple=True,
    help="Another option of the connector, spelt as in docs/options.md; repeatable.",
)


def way_options(command: _F) -> _F:
    """Add the options that say how a stream is reached."""
    for option in (_more_option, _archive_option, aeron_dir_option, stream_id_option, channel_option):
        command = option(command)
    return command


def connector_options(more: tuple[str, ...], **named: str | None) -> dict[str, str]:
    """Return the options of the connector that a command line gives; raise OptionError where one is given twice."""
    given = {name: text for name, text in named.items() if text is not None}
    lower = {name.lower(): name for name in given}
    for text in more:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"--option {text!r} has no '='", remedy="Write --option name=value.")
        if name.lower() in lower:
            raise OptionError(f"option {name!r} is given twice", remedy="Give it once.")
        lower[name.lower()] = name
        given[name] = value
    return given


def way_given(way: Mapping[str, Any], **named: str | None) -> dict[str, str]:
    """Return the options of the connector that the flags of a way, and further ones, give; see above."""
    return connector_options(
        way["more"],
        server=way.get("server"),
        stream=way.get("stream"),
        channel=way["channel"],
        streamId=way["stream_id"],
        archive=way["archive"],
        aeronDir=way["aeron_dir"],
        **named,
    )


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Start the JVM, and give a question: was it asked to stop? A second SIGINT stops at once.

    A JVM takes SIGINT over when it starts, and would end the process without a word.
    """
    from aeron_spark.aeron import jvm

    asked = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        asked.set()

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, stop)
    jvm.start()
    if not asked.is_set():
        signal.signal(signal.SIGINT, stop)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Start the JVM, and give a question: was this process asked to stop? Asked again later, it stops where it is.

    A JVM takes SIGINT and SIGTERM over when it starts, unless it is told not to, and would end without a word.
    """
    from aeron_spark.aeron import jvm

    asked: list[float] = []

    def stop(number: int, frame: FrameType | None) -> None:
        asked.append(time.monotonic())
        if asked[-1] - asked[0] > PATIENCE:
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    jvm.start(jvm.OWN_SIGNALS)
    for number in numbers:
        signal.signal(number, stop)
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Say warnings of the connector as sentences."""

    def say(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
        click.echo(f"aeron-spark: warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
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
