"""docs/command-line.md and docs/commands/ have the help of all commands."""

from __future__ import annotations

from pathlib import Path

import click

from aeron_spark.cli.main import COMMANDS, cli
from aeron_spark.options.declaration import CLIENT, ENDPOINT, SERVER, all_options
from tools.command_page import PAGES, command_pages, write_pages

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_pages_in_the_repository_are_up_to_date() -> None:
    """``make docs`` writes them."""
    in_repository = [DOCS / "command-line.md", *(DOCS / "commands").glob("*.md")]
    texts = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in in_repository}
    assert texts == command_pages()


def test_a_page_without_commands_is_removed(tmp_path: Path) -> None:
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "old.md").touch()
    write_pages(tmp_path)
    assert {path.name for path in (tmp_path / "commands").iterdir()} == {f"{page}.md" for page in PAGES}


def test_the_pages_have_every_command_and_option() -> None:
    assert sorted(name for _, names in PAGES.values() for name in names) == sorted(COMMANDS)
    pages = command_pages()
    of_endpoints = {one.flag for one in all_options() if one.where in (ENDPOINT, SERVER, CLIENT)}
    context = click.Context(cli, info_name="aeron-spark")
    for page, name in ((page, name) for page, (_, names) in PAGES.items() for name in names):
        text = pages[f"commands/{page}.md"]
        command = cli.get_command(context, name)
        assert command is not None
        assert f"## `aeron-spark {name}`" in text
        for subcommand in command.commands.values() if isinstance(command, click.Group) else [command]:
            assert command is subcommand or f"### `aeron-spark {name} {subcommand.name}`" in text
            assert subcommand.help, subcommand.name
            for parameter in subcommand.params:
                if isinstance(parameter, click.Option) and not parameter.hidden:
                    assert parameter.opts[0] in text + pages["command-line.md"] or parameter.opts[0] in of_endpoints
                    assert parameter.help, (subcommand.name, parameter.name)


def test_an_option_of_several_commands_is_explained_once() -> None:
    """Regression: the page had 10,700 words of options, of which 4,400 were different."""
    texts = "\n".join(command_pages().values())
    for explained in (
        "To a pipe: print a line with the names",
        "Go through this secure server",
        "The server's admin socket.",
    ):
        assert texts.count(explained) == 1
