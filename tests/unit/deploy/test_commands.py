"""The commands that deploy/ and its pages name exist, with their options."""

from __future__ import annotations

import re
from typing import Final

import click
import pytest

from aeron_spark.cli.main import cli
from aeron_spark.cli.server_run import run
from tests.programs import ROOT
from tests.unit.deploy.test_service_unit import UNIT

PAGES: Final = "\n".join((ROOT / "docs" / f"{name}.md").read_text() for name in ("operations", "alerts", "upgrade"))
COMMAND: Final = re.compile(r"aeron-spark((?: [a-z][a-z-]*)+)((?: (?:--[a-z-]+|[A-Z:]+|/\S+))*)")


def named() -> list[tuple[str, str]]:
    """Return the words of each command, and the arguments after them."""
    spans = re.findall(
        r"`(aeron-spark [^`]*)`|-- (aeron-spark [^`\n]*)|exec feeds (aeron-spark .*)|^ *(aeron-spark .*)$",
        PAGES,
        re.MULTILINE,
    )
    lines = re.findall(r"=/usr/bin/(aeron-spark .*)", UNIT.read_text())
    found = {(match[1].strip(), match[2]) for text in [*map("".join, spans), *lines] if (match := COMMAND.match(text))}
    return sorted(found)


@pytest.mark.parametrize(("words", "arguments"), named())
def test_a_command_exists_with_its_options(words: str, arguments: str) -> None:
    command: click.Command = cli
    for word in words.split():
        if not isinstance(command, click.Group):
            break  # an argument of the command, such as the file of `clients check`
        found = command.get_command(click.Context(command), word)
        assert found is not None, f"{command.name} has no command {word}"
        command = found
    command = run if words == "server" else command  # the group runs a server if no command follows
    known = {name for parameter in command.params for name in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", arguments)) <= known


def test_the_pages_name_the_commands_of_a_server() -> None:
    assert {"server check", "server reload", "server status", "server"} <= {words for words, _ in named()}
