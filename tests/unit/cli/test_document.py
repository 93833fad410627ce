"""docs/command-line.md has the help of all commands."""

from __future__ import annotations

from pathlib import Path

import click

from aeron_spark.cli.main import COMMANDS, cli
from tools.command_page import commands_page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "command-line.md"


def test_the_page_in_the_repository_is_up_to_date() -> None:
    """``make docs`` writes it."""
    assert PAGE.read_text(encoding="utf-8") == commands_page()


def test_the_page_has_every_command_and_option() -> None:
    page = commands_page()
    context = click.Context(cli, info_name="aeron-spark")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert f"## `aeron-spark {name}`" in page
        for subcommand in command.commands.values() if isinstance(command, click.Group) else [command]:
            assert command is subcommand or f"### `aeron-spark {name} {subcommand.name}`" in page
            assert subcommand.help, subcommand.name
            for parameter in subcommand.params:
                if isinstance(parameter, click.Option):
                    assert parameter.opts[0] in page
                    assert parameter.help, (subcommand.name, parameter.name)
