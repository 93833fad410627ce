"""The ``aeron-spark`` program: loads the module of one command, runs it, and prints an error as one sentence.

Exit codes: 0 success; 1 the operation failed or was not confirmed; 2 the command line or a configuration file is wrong;
3 another process uses the store, the port or the folder; 130 ended by SIGINT.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from aeron_spark.errors import AeronSparkError, InUseError, OptionError

FAILED: Final = 1
WRONG_COMMAND_LINE: Final = 2
IN_USE: Final = 3
INTERRUPTED: Final = 130  # a shell reports the same code for a program that SIGINT ended


@dataclass(frozen=True, slots=True)
class Command:
    """A command's module and name, and its line in the overview, which is printed without loading the module."""

    module: str
    name: str
    summary: str


COMMANDS: Final[Mapping[str, Command]] = {
    "backlog": Command("driver_stats", "backlog", "Show how many bytes each subscriber of a stream is behind."),
    "bans": Command("bans", "bans", "Show, add and remove bans of keys and addresses at this machine's server."),
    "bench": Command("bench", "bench", "Measure a secure server under load."),
    "clients": Command("clients", "clients", "Show and check the keys that a server admits, and their grants."),
    "connections": Command("connections", "connections", "Show and end the connections of this machine's server."),
    "doctor": Command("doctor", "doctor", "Check this machine, and what Spark would run on it."),
    "echo": Command("echo", "echo", "Test whether Aeron's UDP traffic passes NAT and firewalls."),
    "errors": Command("driver_stats", "errors", "Show the errors that the media driver recorded."),
    "jars": Command("jobs", "jars", "Print the jars of format('aeron-jvm'), for spark-submit."),
    "jobs": Command("jobs", "jobs", "List the ready jobs for spark-submit, and print their paths and arguments."),
    "keys": Command("keys", "keys", "Make and show this user's identity key; manage known servers."),
    "loss": Command("driver_stats", "loss", "Show the packet loss that the media driver recorded."),
    "node": Command("node", "node", "Start, stop and show this machine's media driver and archive."),
    "ping": Command("bench", "ping", "Connect to a secure server and measure the round trip."),
    "receive": Command("transfer", "receive", "Receive a stream: write it to standard output or a file."),
    "recordings": Command("recordings", "recordings", "List, stop and delete recordings in archives."),
    "sbe": Command("sbe", "sbe", "Show the messages and columns of an SBE schema."),
    "send": Command("transfer", "send", "Send standard input or files to a stream."),
    "server": Command("server", "server", "Run a secure server with durable streams."),
    "stat": Command("driver_stats", "stat", "Show the media driver's counters."),
    "streams": Command("streams", "streams", "Manage streams in archives, or named streams of a server."),
    "top": Command("driver_stats", "top", "Watch the media driver's streams, or a server's connections and streams."),
}

SHORT_COMMANDS: Final = frozenset({"ping", "recordings", "streams"})  # use their JVM for a few calls


class SuggestingGroup(click.Group):
    """A command group whose error for an unknown command names the nearest known one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            nearest = difflib.get_close_matches(args[0], known, n=1)
            hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Commands: {', '.join(known)}."
            raise click.UsageError(f"Unknown command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)


class LazyCommands(SuggestingGroup):
    """The group of :data:`COMMANDS`. It imports the module of a command only to run it or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = COMMANDS.get(cmd_name)
        if command is None:
            return None
        loaded: Any = getattr(importlib.import_module(f"aeron_spark.cli.{command.module}"), command.name)
        return loaded  # type: ignore[no-any-return]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without loading their modules, and the group's own options."""
        names = [
            CompletionItem(name, help=COMMANDS[name].summary)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in self.list_commands(ctx)])


def _print_version(ctx: click.Context, parameter: click.Parameter, is_set: bool) -> None:
    if is_set:
        from aeron_spark.version import package_version

        click.echo(f"aeron-spark {package_version()}")
        ctx.exit()


@click.command(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Send and receive Aeron streams, manage them, and operate their media driver, archive and server.

    'aeron-spark COMMAND --help' explains a command. Most commands take --json: one JSON object per line.
    """
    if context.invoked_subcommand in SHORT_COMMANDS:
        from aeron_spark.aeron import jvm

        jvm.expect_short_use()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    try:
        result = cli.main(args=arguments, prog_name="aeron-spark", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        # Click raises Abort for SIGINT, for the response "no", and for the end of input at a prompt.
        interrupted = isinstance(error.__context__, KeyboardInterrupt)
        click.echo("interrupted" if interrupted else "not confirmed: nothing was changed", err=True)
        return INTERRUPTED if interrupted else FAILED
    except AeronSparkError as error:
        click.echo(f"aeron-spark: {error}", err=True)
        return exit_code(error)
    except BrokenPipeError:  # the program that reads the output, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:  # for example: standard output is on a full disk, or a folder is not writable
        file = f"{error.filename}: " if error.filename else ""
        click.echo(f"aeron-spark: {file}{error.strerror or error}", err=True)
        return FAILED
    return result if isinstance(result, int) else 0


def exit_code(error: AeronSparkError) -> int:
    """Return the exit code of a command that ends with ``error``."""
    if isinstance(error, OptionError):
        return WRONG_COMMAND_LINE
    return IN_USE if isinstance(error, InUseError) else FAILED


if __name__ == "__main__":
    sys.exit(main())
