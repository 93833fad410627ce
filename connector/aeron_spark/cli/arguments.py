"""Flags of the secure endpoint's commands, made of the option table: a name there is a flag here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from aeron_spark.cli.main import INTERRUPTED as INTERRUPTED
from aeron_spark.cli.output import aeron_dir_option
from aeron_spark.errors import OptionError
from aeron_spark.options import ClientOptions, ServerOptions
from aeron_spark.options.endpoint_options import flags_of

_F = TypeVar("_F", bound=Callable[..., Any])


def table_options(endpoint: type[ClientOptions | ServerOptions]) -> Callable[[_F], _F]:
    """Add a flag for each option of the table that may be given there; the texts arrive under their own names."""

    def add(command: _F) -> _F:
        for option in reversed(flags_of(endpoint)):
            default = option.shown_default or option.default
            text = re.sub(r"`([^`]*)`", r"\1", option.meaning)
            command = click.option(
                option.flag,
                option.name,
                metavar="|".join(option.type.choices) or option.type.metavar,
                help=f"{text}  [default: {re.sub('`', '', default)}]" if default is not None else text,
            )(command)
        return command

    return add


def given_options(values: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were given."""
    return {name: value for name, value in values.items() if value is not None}


def client_command(command: _F) -> _F:
    """Add what names the server of a client's command: HOST:PORT or --server; and --option."""
    command = click.argument("address", metavar="[HOST:PORT]", required=False)(command)
    for option in (more_option, click.option("--server", metavar="HOST:PORT", help="The server; or as HOST:PORT.")):
        command = option(command)
    return command


def client_given(address: str | None, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the server's address, and the options of the connection; raise OptionError for wrong ones.

    Nothing is started before they are right.
    """
    from aeron_spark.client.settings import ClientSettings

    server, more = given.pop("server"), given.pop("more")
    if address is not None and server is not None:
        raise OptionError(f"the server is given twice, as {address} and --server {server}", remedy="Give it once.")
    found = address or server
    if not found:
        raise OptionError("no server is named", remedy="Give its address, such as --server feeds.example:20121.")
    options = connector_options(more, **given)
    ClientSettings.of(ClientOptions.parse(found, options))
    return found, dict(options)


def refuse_twice(first: dict[str, Any], second: dict[str, Any], where: str) -> None:
    """Raise OptionError for what both give."""
    both = sorted({name.lower() for name in first} & {name.lower() for name in second})
    if both:
        raise OptionError(f"{both[0]!r} is given by a flag and in {where}", remedy="Give it once.")


DEFAULT_TIMEOUT_S: Final = (
    1.0  # seconds after being asked to stop; several signals at once (of a terminal, of timeout(1)) are one
)

DIRECT: Final = ("channel", "streamId", "archive")

DIRECT_ONLY: Final = ("ack", "record")

OF_STREAMS: Final = ("payload", "writerId")  # options of a reader or a writer, and not of its connection

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


def route_options(command: _F) -> _F:
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


def route_given(way: Mapping[str, Any], **named: str | None) -> dict[str, str]:
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
        return values.parse_stream_name(name)
    except ValueError as error:
        raise OptionError(f"a stream cannot be called {name[:160]!r}", remedy=f"Give {error}.") from None


def check_client(given: Mapping[str, str]) -> None:
    """Raise OptionError for a wrong option of a connection, before anything is started."""
    from aeron_spark.client.settings import ClientSettings
    from aeron_spark.options import ClientOptions

    if "stream" not in given:
        ClientSettings.of(ClientOptions.parse(*client_arguments(given)))
        return
    address, _, rest = stream_arguments(given)
    options = {name: text for name, text in rest.items() if name not in OF_STREAMS}
    ClientSettings.of(ClientOptions.parse(address, options))


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
