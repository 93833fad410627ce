"""``aeron-spark``: finds the command, loads it alone, and turns what went wrong into a sentence and an exit code.

Exit codes: 0 done; 1 the operation failed, or the answer is no; 2 the command line or the configuration is wrong; 3 in
use: another process holds the store, the port or a folder; 130 ended by SIGINT.
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
INTERRUPTED: Final = 130  # as a shell reports a program that SIGINT ended


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command is, and the line the overview shows, so that the overview loads nothing."""

    module: str
    name: str
    summary: str


COMMANDS: Final[Mapping[str, Command]] = {
    "backlog": Command("driver_stats", "backlog", "How far each subscriber of each stream is behind."),
    "bench": Command("bench", "bench", "Put load on a secure server."),
    "doctor": Command("doctor", "doctor", "Check Java, jars, space, limits and leftovers of this machine."),
    "echo": Command("echo", "echo", "Serve Echo 1.0 or 2.0, or ask a server: does Aeron pass this path?"),
    "errors": Command("driver_stats", "errors", "The media driver's distinct errors."),
    "keys": Command("keys", "keys", "Make and show this user's identity; list, trust and forget servers."),
    "loss": Command("driver_stats", "loss", "The media driver's loss report."),
    "node": Command("node", "node", "Start, stop and ask this machine's media driver and archive."),
    "ping": Command("ping", "ping", "Connect to a secure server, and measure the round trip."),
    "receive": Command("receive", "receive", "Receive a stream: to standard output, or a file."),
    "recordings": Command(
        "recordings", "recordings", "List, stop and delete recordings of the direct route, and see who started them."
    ),
    "send": Command("send", "send", "Send standard input, or files, to a stream."),
    "server": Command("server", "server", "Run a secure endpoint."),
    "stat": Command("driver_stats", "stat", "The media driver's counters."),
    "streams": Command(
        "streams", "streams", "List, describe, create, purge and delete streams: of archives, or of a server."
    ),
    "top": Command("driver_stats", "top", "A live view of the media driver: how fast its streams move."),
}


class NearestNames(click.Group):
    """A group that answers an unknown command with the nearest known one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
            raise click.UsageError(f"There is no command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)


class LazyCommands(NearestNames):
    """The overview of :data:`COMMANDS`; a command's module is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = COMMANDS.get(cmd_name)
        if command is None:
            return None
        found: Any = getattr(importlib.import_module(f"aeron_spark.cli.{command.module}"), command.name)
        return found  # type: ignore[no-any-return]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands from the overview, which loads none of them; else what every group does."""
        found = [
            CompletionItem(name, help=COMMANDS[name].summary)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in self.list_commands(ctx)])


def _print_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from aeron_spark.version import package_version

        click.echo(f"aeron-spark {package_version()}")
        ctx.exit()


@click.command(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def cli() -> None:
    """Apache Spark and Aeron: this machine's media driver and archive, its streams, and what they say."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    try:
        result = cli.main(args=arguments, prog_name="aeron-spark", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        # Click raises it for a signal and for the answer no.
        interrupted = isinstance(error.__context__, KeyboardInterrupt)
        click.echo("interrupted" if interrupted else "not confirmed: nothing was done", err=True)
        return INTERRUPTED if interrupted else FAILED
    except AeronSparkError as error:
        click.echo(f"aeron-spark: {error}", err=True)
        return exit_code(error)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:  # such as a full disk behind standard output, or a folder that this user cannot write to
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"aeron-spark: {where}{error.strerror or error}", err=True)
        return FAILED
    return result if isinstance(result, int) else 0


def exit_code(error: AeronSparkError) -> int:
    """Return the exit code of a command that ends with ``error``."""
    if isinstance(error, OptionError):
        return WRONG_COMMAND_LINE
    return IN_USE if isinstance(error, InUseError) else FAILED


if __name__ == "__main__":
    sys.exit(main())
