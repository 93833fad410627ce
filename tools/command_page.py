"""Prints ``docs/command-line.md`` from the help of the commands."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Final

import click

from aeron_spark.cli.main import cli

WIDTH: Final = 100

INTRODUCTION: Final = """# The command line

`make docs` writes this page from the commands' own help; `aeron-spark COMMAND --help` prints the same text.

Most commands reach a stream in one of two ways. On the **direct route**, `--channel` and `--stream-id` name an Aeron
channel and its recordings in an archive. With `--server`, they go **through a secure server**, and `--stream` names one
of its durable streams. [concepts.md](concepts.md) explains the terms.

## Examples

Send and receive directly. `--record` lets this machine's archive record the stream:

```sh
printf 'one\\ntwo\\n' | aeron-spark send --channel aeron:ipc --stream-id 1001 --record --ack archive
aeron-spark receive --channel aeron:ipc --stream-id 1001
aeron-spark receive --channel aeron:ipc --stream-id 1001 --follow --json | jq .value
aeron-spark send flights.parquet --channel aeron:ipc --stream-id 1002 --record
aeron-spark receive --channel aeron:ipc --stream-id 1002 --output copy.parquet
```

Send and receive through a server. Each file is one transaction, which becomes visible completely or not at all:

```sh
aeron-spark streams create flights --partitions 4 --retention 7d --server feeds.example:20121
aeron-spark send flights.parquet --stream flights --server feeds.example:20121
tail -f log | aeron-spark send --stream lines --commit-rows 1 --server feeds.example:20121
aeron-spark receive --stream flights --output copy.csv --server feeds.example:20121
aeron-spark receive --stream flights --follow --start -10min --server feeds.example:20121
```

Without `--follow`, `receive` ends at the current end of the stream. With it, `receive` waits for further rows until
SIGINT (Ctrl-C), which ends it with exit code 0. The file of `--output` appears when it is complete. In JSON, the bytes
of a message are `value` if they are UTF-8 text, else `valueBase64`; `send --format json` accepts both. Columns of bytes
in rows are base64.

## Output and exit codes

* **On a terminal**, lists are tables, and long operations show a progress bar. Each row has one line: a narrow terminal
  gets a table without its less important columns and with long texts cut off, and the title says so. `--wide` shows
  everything.
* **To a pipe or a file**, each row is a line with tabs between its cells, without title, header, borders or colours. No
  cell is cut off or folded. With `--header`, a line with the names of the columns comes before the rows of a table.
  `-` stands for a missing value, and `\\t`, `\\n`, `\\xNN` for control characters. If a
  command prints several tables, the first cell is the kind of the row (`stream`, `partition`, `recording`). An empty
  list prints nothing on standard output, and a sentence on standard error. `keys show` prints one line: the key, in the
  form that a server's file of authorised keys needs.
* **With `--json`**, every command prints one JSON object per line.
* Times are printed as ISO in UTC (`2026-11-23T18:30:00.000Z`). Options take times as ISO, with `T` or a space, in UTC
  unless they have a zone, or relative to now, such as `-10min`.

| exit code | meaning |
|---|---|
| 0 | success |
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
process, after they have checked the command line. `node start` starts one in the node's process. The other commands
start none and need no Java: `--help`, `--version`, completion, `bans`, `clients`, `connections`, `keys`,
`node status`, `node stop`, `sbe`, `server check`, `server reload`, `server status`, `stat`, `errors`, `loss`,
`backlog`, `top`, `doctor`.
"""


def commands_page() -> str:
    """Return the text of ``docs/command-line.md``: an introduction, then the help of each command."""
    return "\n".join([INTRODUCTION, *_sections(cli, None)])


def _sections(command: click.Command, parent: click.Context | None) -> Iterator[str]:
    name = command.name if parent is not None else "aeron-spark"
    context = click.Context(
        command, parent, name, color=False, terminal_width=WIDTH, max_content_width=WIDTH, **command.context_settings
    )
    # Some versions of click print spaces at the ends of lines.
    text = re.sub(r"[ \t]+$", "", command.get_help(context), flags=re.MULTILINE)
    heading = "##" if parent is None or parent.parent is None else "###"
    yield f"{heading} `{context.command_path}`\n\n```text\n{text}\n```\n"
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            subcommand = command.get_command(context, child)
            if subcommand is not None:
                yield from _sections(subcommand, context)


if __name__ == "__main__":
    sys.stdout.write(commands_page())
