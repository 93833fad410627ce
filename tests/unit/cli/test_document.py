"""The page on the command line is what the commands say of themselves."""

from __future__ import annotations

from pathlib import Path

import click

from aeron_spark.cli.document import markdown
from aeron_spark.cli.main import COMMANDS, cli

PAGE = Path(__file__).resolve().parents[3] / "docs" / "command-line.md"


def test_the_page_is_the_one_in_the_repository() -> None:
    """Made again by ``make docs``."""
    assert PAGE.read_text(encoding="utf-8") == markdown()


def test_every_command_and_every_option_is_on_it() -> None:
    page = markdown()
    context = click.Context(cli, info_name="aeron-spark")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert f"## `aeron-spark {name}`" in page
        for one in command.commands.values() if isinstance(command, click.Group) else [command]:
            assert command is one or f"### `aeron-spark {name} {one.name}`" in page
            assert one.help, one.name
            for parameter in one.params:
                if isinstance(parameter, click.Option):
                    assert parameter.opts[0] in page
                    assert parameter.help, (one.name, parameter.name)
