"""Options that several commands share, and the functions that turn them into options of the connector."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aeron_spark.cli.output import aeron_dir_option
from aeron_spark.cli.signals import running
from aeron_spark.errors import DataFormatError, OptionError, SetupError
from aeron_spark.files import read_toml
from aeron_spark.options import ClientOptions, ServerOptions
from aeron_spark.options.endpoint_options import flags_of
from aeron_spark.options.values import FLAG

if TYPE_CHECKING:
    from aeron_spark.client.named_streams import ServerStreams
    from aeron_spark.direct.catalog import DirectStreams

_Command = TypeVar("_Command", bound=Callable[..., Any])


def endpoint_flags(
    endpoint: type[ClientOptions | ServerOptions], *, hidden: bool = False
) -> Callable[[_Command], _Command]:
    """Return a decorator that adds a flag for each option of a client or a server, with the option's own help text.

    The command gets the values as texts, under the names of the options, and None for an absent flag. ``hidden`` flags
    are not in its help.
    """

    def add(command: _Command) -> _Command:
        for option in reversed(flags_of(endpoint)):
            default = option.shown_default or option.default
            text = re.sub(r"`([^`]*)`", r"\1", option.meaning)
            command = click.option(
                option.flag,
                option.name,
                metavar="|".join(option.type.choices) or option.type.metavar,
                help=f"{text}  [default: {re.sub('`', '', default)}]" if default is not None else text,
                hidden=hidden,
            )(command)
        return command

    return add


class EndpointCommand(click.Command):
    """A command with ``endpoint_flags``: a flag for an option that is true or false may have no value, for true."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        booleans = {flag for one in self.params if getattr(one, "metavar", "") == FLAG.metavar for flag in one.opts}
        completed: list[str] = []
        for number, arg in enumerate(args):
            completed.append(arg)
            following = args[number + 1].lower() if number + 1 < len(args) else ""
            if arg in booleans and following not in ("true", "false"):
                completed.append("true")
        return super().parse_args(ctx, completed)


def present_options(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags of the command line that have a value."""
    return {name: value for name, value in flags.items() if value is not None}


def client_command(command: _Command) -> _Command:
    """Add the argument HOST:PORT, the option --server for the same, and --option."""
    command = click.argument("address", metavar="[HOST:PORT]", required=False)(command)
    for option in (
        extra_option,
        click.option("--server", metavar="HOST:PORT", help="The server's address; the same as the argument HOST:PORT."),
    ):
        command = option(command)
    return command


def read_client_flags(address: str | None, flags: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the server's address and the options of the connection.

    Checks all options, so that a command starts nothing for a wrong command line. Raises OptionError if one is wrong,
    or if the address is missing or given twice.
    """
    from aeron_spark.keys.key_files import read_shared_secret

    server, extra = flags.pop("server"), flags.pop("extra")
    if address is not None and server is not None:
        raise OptionError(
            f"the server's address is given twice: {address} and --server {server}", remedy="Give one of them."
        )
    found = address or server
    if not found:
        raise OptionError("the server's address is missing", remedy="Give it, such as --server feeds.example:20121.")
    options = connector_options(extra, **flags)
    read_shared_secret(ClientOptions.parse(found, options).shared_secret_file)
    return found, dict(options)


def read_configuration(path: Path) -> dict[str, Any]:
    """Read a TOML file of a server's options. Raises OptionError (exit code 2) if it cannot be read or is wrong."""
    try:
        return read_toml(path)
    except (SetupError, DataFormatError) as error:
        raise OptionError(error.what, remedy=error.remedy) from None


def refuse_duplicates(flags: dict[str, Any], file_options: dict[str, Any], file: str) -> None:
    """Raise OptionError if the command line and the configuration file both set an option."""
    both = sorted({name.lower() for name in flags} & {name.lower() for name in file_options})
    if both:
        raise OptionError(
            f"option {both[0]!r} is given on the command line and in {file}", remedy="Give it in one of them."
        )


def merged_server_options(
    address: str | None, config: Path | None, flags: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the address and the options of a server's command line and configuration file. Raises OptionError."""
    options = present_options(flags)
    if config is not None:
        file_options = read_configuration(config)
        refuse_duplicates(options, file_options, str(config))
        options |= file_options
    if not any(name.replace("_", "").lower() == "logformat" for name in options):
        options["logformat"] = "text"
    ServerOptions.parse(address or "", options)  # other names could be parameters of the class Server
    return address or "", options


yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation; needed in scripts.")

channel_option = click.option(
    "--channel", metavar="URI", help="Direct route: the stream's Aeron channel, such as aeron:ipc."
)

stream_id_option = click.option(
    "--stream-id", metavar="N", help="Direct route: the stream's number in its channel, such as 1001."
)

server_option = click.option(
    "--server", metavar="HOST:PORT", help="Go through this secure server, instead of directly to the channel."
)

identity_option = click.option(
    "--identity",
    metavar="FILE|env:NAME",
    help="With --server: this client's identity key: a file, or an environment variable that contains it.  [default: "
    "this user's identity file; made at its first use]",
)

server_key_option = click.option(
    "--server-key",
    metavar="KEY",
    help="With --server: the server's public key, as 'aeron-spark keys show --server' prints it on the server's "
    "machine; any other key is refused.  [default: the key in this user's file of known servers; the key of a new "
    "server is accepted once and stored there]",
)

stream_option = click.option(
    "--stream",
    metavar="NAME",
    help="With --server: the server's durable stream of this name.  [default: none; messages are relayed to the "
    "clients that receive now, and not stored]",
)

sbe_schema_option = click.option("--sbe-schema", metavar="FILE", help="With --payload sbe: the XML file of the schema.")

_archive_option = click.option(
    "--archive",
    metavar="URI",
    help="Direct route: control channel of the archive, such as aeron:udp?endpoint=HOST:8010.  [default: the archive "
    "of this machine's node; started if it does not run]",
)

extra_option = click.option(
    "--option",
    "extra",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set another option of the connector, such as connectTimeout=30s; docs/options.md lists them. Repeatable.",
)


def route_options(command: _Command) -> _Command:
    """Add the options of the direct route, and --option."""
    for option in (extra_option, _archive_option, aeron_dir_option, stream_id_option, channel_option):
        command = option(command)
    return command


def server_options(command: _Command) -> _Command:
    """Add the options for the address of a server and for the keys of client and server."""
    for option in (server_key_option, identity_option, server_option):
        command = option(command)
    return command


def connector_options(extra: tuple[str, ...], **named: str | None) -> dict[str, str]:
    """Return the connector's options: those of --option and the ``named`` ones that are not None.

    Names in ``extra`` are compared without regard to case; a name in ``named`` keeps its spelling. Raises OptionError
    for a text without '=' and for an option that is given twice.
    """
    options = {name: text for name, text in named.items() if text is not None}
    spelling = {name.lower(): name for name in named}
    for text in extra:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"--option {text!r} has no '='", remedy="Write --option NAME=VALUE.")
        name = spelling.setdefault(name.lower(), name)
        if name in options:
            raise OptionError(f"option {name!r} is given twice", remedy="Give it once.")
        options[name] = value
    return options


def read_route_flags(route_flags: Mapping[str, Any], **named: str | None) -> dict[str, str]:
    """Return the connector's options that the flags of a route, --option and ``named`` give.

    Raises OptionError if a key of client or server is given without a server.
    """
    options = connector_options(
        route_flags["extra"],
        server=route_flags.get("server"),
        stream=route_flags.get("stream"),
        identity=route_flags.get("identity"),
        serverKey=route_flags.get("server_key"),
        cluster=route_flags.get("cluster"),
        channel=route_flags["channel"],
        streamId=route_flags["stream_id"],
        archive=route_flags["archive"],
        aeronDir=route_flags["aeron_dir"],
        **named,
    )
    if "server" not in options:
        for name, flag in (("identity", "--identity"), ("serverKey", "--server-key")):
            if name in options:
                raise OptionError(f"{flag} needs a connection to a server", remedy="Add --server HOST:PORT.")
    return options


def streams_of_flags(route_flags: Mapping[str, Any]) -> DirectStreams | ServerStreams:
    """Return the streams of the route that the flags of a command choose."""
    return streams_of_options(read_route_flags(route_flags))


def streams_of_options(options: Mapping[str, str]) -> DirectStreams | ServerStreams:
    """Return the streams of the route that the options choose."""
    from aeron_spark.log_factory import streams_of

    return streams_of(options, partial(running, options))


def sbe_flags(flags: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the options that the flags of SBE messages give."""
    return {"sbeSchema": flags["sbe_schema"], "sbeMessage": flags["sbe_message"]}
