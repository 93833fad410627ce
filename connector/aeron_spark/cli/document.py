"""``docs/command-line.md``, from the commands' own help: ``python -m aeron_spark.cli.document``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import click

from aeron_spark.cli.main import cli

WIDTH: Final = 100

INTRODUCTION: Final = """# The command line

Written by `make docs` from the commands' own help; `aeron-spark COMMAND --help` says the same.

## Output and exit codes

* **On a terminal** lists are tables, and long work shows a progress bar.
* **To a pipe or a file** they are plain lines: a row is a line, with a tab between two cells and no title, head, box or
  colour. Nothing is cut or folded. `-` stands for a value that there is not, and `\\t`, `\\n`, `\\xNN` for control
  characters. Where a command prints several tables, the first cell says which (`stream`, `partition`, `recording`).
  That there are no rows is said on standard error. `keys show` prints one line: the key, as a server's file of
  authorised clients has it.
* **With `--json`** every command prints one JSON object a line.
* Times are printed as ISO in UTC (`2026-11-23T18:30:00.000Z`), and taken as ISO, with `T` or a space, in UTC unless
  they name a zone, or as a time ago such as `-10min`.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the operation failed, or the answer is no: also a stream, a recording or a key that is not there |
| 2 | the command line, or a file of settings, is wrong |
| 3 | in use: another process holds the store, the port or a folder |
| 130 | SIGINT ended it before it was done |

Errors are sentences on standard error, and say what to do.

## Completion in a shell

The shell asks `aeron-spark` itself for commands, options and choices. For Bash 4.4 or newer, Zsh and Fish:

```sh
echo 'eval "$(_AERON_SPARK_COMPLETE=bash_source aeron-spark)"' >> ~/.bashrc
echo 'eval "$(_AERON_SPARK_COMPLETE=zsh_source aeron-spark)"' >> ~/.zshrc
_AERON_SPARK_COMPLETE=fish_source aeron-spark > ~/.config/fish/completions/aeron-spark.fish
```

## Which commands start a JVM

`send`, `receive`, `streams`, `recordings`, `ping`, `echo`, `bench` and `server` start a JVM in their own process, once
the command line has been found right. `node start` starts one in the node's process. All other commands start none, and
need no Java: `--help`, `--version`, completion, `keys`, `node status`, `node stop`, `stat`, `errors`, `loss`,
`backlog`, `top`, `doctor`.

## From one program to another

```sh
printf 'one\\ntwo\\n' | aeron-spark send --channel aeron:ipc --stream-id 1001 --record --ack archive
aeron-spark receive --channel aeron:ipc --stream-id 1001
aeron-spark receive --channel aeron:ipc --stream-id 1001 --follow --json | jq .value
aeron-spark send flights.parquet --channel aeron:ipc --stream-id 1002 --record
aeron-spark receive --channel aeron:ipc --stream-id 1002 --output copy.parquet
```

Through a server's named stream, where each file is a transaction: all of it is there, once, or nothing.

```sh
aeron-spark streams create flights --partitions 4 --retention 7d --server feeds.example:20121
aeron-spark send flights.parquet --stream flights --server feeds.example:20121
tail -f log | aeron-spark send --stream lines --commit-rows 1 --server feeds.example:20121
aeron-spark receive --stream flights --output copy.csv --server feeds.example:20121
aeron-spark receive --stream flights --follow --start -10min --server feeds.example:20121
```

Without `--follow`, `receive` ends when it has written what is recorded. With it, SIGINT is the ordinary end (exit code
0); a file named by `--output` appears, whole, when it ends. In JSON a message's bytes are `value` where they are UTF-8
text, else `valueBase64`; `send --format json` takes both. Columns of bytes in rows are base64.
"""


def markdown() -> str:
    """Return the whole document."""
    return "\n".join([INTRODUCTION, *_sections(cli, None)])


def _sections(command: click.Command, parent: click.Context | None) -> Iterator[str]:
    name = command.name if parent is not None else "aeron-spark"
    context = click.Context(
        command, parent, name, color=False, terminal_width=WIDTH, max_content_width=WIDTH, **command.context_settings
    )
    # What the table of an installed click leaves at the ends of lines is no one's concern.
    text = re.sub(r"[ \t]+$", "", command.get_help(context), flags=re.MULTILINE)
    depth = "##" if parent is None or parent.parent is None else "###"
    yield f"{depth} `{context.command_path}`\n\n```text\n{text}\n```\n"
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None:
                yield from _sections(found, context)


if __name__ == "__main__":
    print(markdown(), end="")
