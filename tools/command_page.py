"""Writes ``docs/command-line.md``, and a page of ``docs/commands/`` for each group of commands, from their help.

``python -m tools.command_page docs`` writes them. An option that at least :data:`COMMON` commands have with the same
text stands once, in the table of ``docs/command-line.md``; the options of a server or client are those of
``docs/options.md``.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from aeron_spark.cli.main import cli
from aeron_spark.cli.server import RUN, ServerGroup
from aeron_spark.options import ClientOptions, ServerOptions
from aeron_spark.options.endpoint_options import flags_of

WIDTH: Final = 100
COMMON: Final = 3  # commands with an option, from which on it stands in the shared table
ANCHOR: Final = "options-of-several-commands"
# Shared options that many commands have together, by the name of the set in the table.
SETS: Final[Mapping[str, frozenset[str]]] = {
    "route": frozenset(
        {"--channel", "--stream-id", "--archive", "--aeron-dir", "--option", "--server", "--identity", "--server-key"}
    ),
    "table": frozenset({"--wide", "--header", "--json"}),
    "server": frozenset({"--config", "--streams-dir", "--admin-socket"}),
}

PAGES: Final = {
    "messages": ("Send and receive", ("send", "receive")),
    "streams": ("Streams and recordings", ("streams", "recordings")),
    "server": ("The server", ("server", "connections", "clients", "bans")),
    "client": ("Keys and tests of a client", ("keys", "ping", "bench", "echo")),
    "node": ("The node and its media driver", ("node", "doctor", "top", "stat", "errors", "loss", "backlog")),
    "spark": ("Spark", ("jobs", "jars", "sbe")),
}

_HEAD: Final = """# The command line

`make docs` writes this page and those of the commands from the commands' own help, which
`aeron-spark COMMAND --help` prints.

Most commands reach a stream on one of [two routes](concepts.md). On the **direct route**, `--channel` and `--stream-id`
name an Aeron channel and its recordings in an archive. With `--server`, they go **through a secure server**, and
`--stream` names one of its durable streams.
"""

_SHARED: Final = """## Options of several commands

Each command has `-h` and `--help`. A word in italics names a set of options that commands have together.
"""

_TAIL: Final = """## Examples

Send and receive directly. `--record` lets this machine's archive record the stream:

```sh
printf 'one\\ntwo\\n' | aeron-spark send --channel aeron:ipc --stream-id 1001 --record --ack archive
aeron-spark receive --channel aeron:ipc --stream-id 1001 --follow --json | jq .value
aeron-spark send flights.parquet --channel aeron:ipc --stream-id 1002 --record
aeron-spark receive --channel aeron:ipc --stream-id 1002 --output copy.parquet
```

Send and receive through a server. Each file is one transaction:

```sh
aeron-spark streams create flights --partitions 4 --retention 7d --server feeds.example:20121
aeron-spark send flights.parquet --stream flights --server feeds.example:20121
tail -f log | aeron-spark send --stream lines --commit-rows 1 --server feeds.example:20121
aeron-spark receive --stream flights --follow --start -10min --server feeds.example:20121
```

The file of `--output` appears when it is complete. In JSON, the bytes of a message are `value` if they are UTF-8 text,
else `valueBase64`; `send --format json` accepts both. Columns of bytes in rows are base64.

## Output and exit codes

* **On a terminal**, lists are tables with one line for each row, and long operations show a progress bar. A narrow
  terminal gets a table without its less important columns and with long texts cut off, and the title says so.
* **To a pipe or a file**, each row is a line with tabs between its cells, without title or colours. No cell is cut off.
  `-` stands for a missing value, and `\\t`, `\\n`, `\\xNN` for control characters. If a command prints several tables,
  the first cell is the kind of the row (`stream`, `partition`, `recording`). An empty list prints nothing on standard
  output, and a sentence on standard error.
* Times are printed as ISO in UTC (`2026-11-23T18:30:00.000Z`). Options take times as ISO, with `T` or a space, in UTC
  unless they have a zone, or relative to now, such as `-10min`.

| exit code | meaning |
|---|---|
| 0 | success; also if Ctrl-C ended a command that follows a stream |
| 1 | the operation failed or was not confirmed; also if a stream, a recording or a key does not exist |
| 2 | the command line or a configuration file is wrong |
| 3 | another process uses the store, the port or a folder |
| 130 | SIGINT ended the command before it was done |

An error is one sentence on standard error, with a second one that says what to do.

## Completion in a shell

The shell gets the names of commands, options and choices from `aeron-spark` itself. For Bash 4.4 or newer, Zsh and
Fish:

```sh
echo 'eval "$(_AERON_SPARK_COMPLETE=bash_source aeron-spark)"' >> ~/.bashrc
echo 'eval "$(_AERON_SPARK_COMPLETE=zsh_source aeron-spark)"' >> ~/.zshrc
_AERON_SPARK_COMPLETE=fish_source aeron-spark > ~/.config/fish/completions/aeron-spark.fish
```

## Commands that start a JVM

`send`, `receive`, `streams`, `recordings`, `ping`, `echo`, `bench` and `server HOST:PORT` start a JVM in their own
process, after they have checked the command line. `node start` starts one in the node's process. All other commands
start none and need no Java.
"""


@dataclass(frozen=True, slots=True)
class _Help:
    """The help of a command: its usage with its description, and the names and texts of its options."""

    path: str
    text: str
    options: tuple[tuple[str, str], ...]
    endpoint: str  # "server" or "client" if the command has the options of one


def command_pages() -> dict[str, str]:
    """Return the texts of ``command-line.md`` and of the pages of ``commands/``, by their paths in ``docs/``."""
    commands = {name: tuple(_helps(cli, name)) for _, names in PAGES.values() for name in names}
    shared = _shared([one for some in commands.values() for one in some])
    pages = {"command-line.md": "\n".join([_HEAD, _overview(), _table(shared), _TAIL])}
    for page, (title, names) in PAGES.items():
        sections = [_section(one, shared) for name in names for one in commands[name]]
        pages[f"commands/{page}.md"] = "\n".join([f"# Commands: {title[0].lower()}{title[1:]}\n", *sections])
    return pages


def _helps(parent: click.Group, name: str, path: str = "aeron-spark") -> Iterator[_Help]:
    """Yield the help of a command and of its subcommands."""
    command = parent.get_command(_context(parent, path), name)
    assert command is not None
    context = _context(command, f"{path} {name}")
    # Some versions of click print spaces at the ends of lines.
    text = re.sub(r"[ \t]+$", "", command.get_help(context), flags=re.MULTILINE)
    text = re.split(r"\n+(?:Options|Commands):\n", text)[0]
    if isinstance(command, click.Group):
        if isinstance(command, ServerGroup):
            _, command_of_server, _ = command.resolve_command(context, [RUN])
            assert command_of_server is not None
            yield _help(context, text, command_of_server)
        else:
            yield _Help(context.command_path, text.partition("\n\n")[2], (), "")
        for child in command.list_commands(context):
            yield from _helps(command, child, context.command_path)
    else:
        yield _help(context, text, command)


def _context(command: click.Command, path: str) -> click.Context:
    # A command keeps its option for help, which another context of the same process shows, too: give it all its names.
    settings = {**cli.context_settings, "info_name": path, "color": False}
    return click.Context(command, terminal_width=WIDTH, max_content_width=WIDTH, **settings)


def _help(context: click.Context, text: str, command: click.Command) -> _Help:
    records = [one.get_help_record(context) for one in command.params if isinstance(one, click.Option)]
    options = {record[0]: " ".join(record[1].split()) for record in records if record is not None}
    endpoint = ""
    for name, declared in (("server", ServerOptions), ("client", ClientOptions)):
        flags = {one.flag for one in flags_of(declared)}
        if flags <= {flag for one in command.params for flag in one.opts}:
            endpoint = name
            options = {names: meaning for names, meaning in options.items() if names.split()[0] not in flags}
    return _Help(context.command_path, text, tuple(options.items()), endpoint)


def _shared(helps: Sequence[_Help]) -> dict[tuple[str, str], frozenset[str]]:
    """Return the options that several commands have with the same text, each with the first words of these commands."""
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in helps:
        for option in one.options:
            users[option].append(one.path.split(" ")[1])
    return {option: frozenset(some) for option, some in users.items() if len(some) >= COMMON}


def _overview() -> str:
    lines = ["| page | commands |", "|---|---|"]
    for page, (title, names) in PAGES.items():
        lines.append(f"| [{title}](commands/{page}.md) | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join([*lines, ""])


def _table(shared: Mapping[tuple[str, str], frozenset[str]]) -> str:
    """Return the table of the options that several commands have."""
    lines = [_SHARED, "| option | meaning |", "|---|---|"]
    for (names, meaning), users in sorted(shared.items(), key=lambda item: item[0][0].lstrip("-")):
        one_group = f"With `{', '.join(users)}`: {meaning[0].lower()}{meaning[1:]}" if len(users) == 1 else meaning
        sets = "".join(f" *{name}*" for name, members in SETS.items() if _long(names) in members)
        lines.append(f"| `{_cell(names)}`{sets} | {_cell(one_group)} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _long(names: str) -> str:
    """Return ``--yes`` of ``-y, --yes``, and ``--channel`` of ``--channel URI``."""
    return names.split(", ")[-1].split(" ")[0]


def _section(one: _Help, shared: Container[tuple[str, str]]) -> str:
    """Return the section of a command: its help with its own options, then the names of the other options."""
    parts = [one.text]
    own = [option for option in one.options if option not in shared]
    if own:
        formatter = click.HelpFormatter(width=WIDTH)
        with formatter.section("Options"):
            formatter.write_dl(own)
        parts.append(formatter.getvalue().rstrip())
    level = "##" if one.path.count(" ") == 1 else "###"
    lines = [f"{level} `{one.path}`", "", "```text", "\n\n".join(parts), "```", ""]
    others = {_long(names) for names, meaning in one.options if (names, meaning) in shared}
    named = []
    for name, members in SETS.items():
        if members <= others:
            named.append(f"*{name}*")
            others -= members
    named += [f"`{names}`" for names in sorted(others)]
    if one.endpoint:
        named.append(f"those of a [{one.endpoint}](../options.md#{one.endpoint})")
    if named:
        lines += [f"[Further options](../command-line.md#{ANCHOR}): {', '.join(named)}.", ""]
    return "\n".join(lines)


def write_pages(folder: Path) -> None:
    """Write the pages into a folder, and remove others from its ``commands/``."""
    texts = command_pages()
    (folder / "commands").mkdir(exist_ok=True)
    for path in (folder / "commands").glob("*.md"):
        if f"commands/{path.name}" not in texts:
            path.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
