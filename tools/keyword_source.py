"""Prints ``options/keywords.py``: the types of the options that ``connect``, ``Client.to`` and ``Server`` take."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Final

from aeron_spark.options.declaration import CLIENT, ENDPOINT, SERVER, Option, all_options

WIDTH: Final = 120

# Metavar of an option's type -> the Python types that a program may give. Each option takes its text, too.
_TYPES: Final[Mapping[str, str]] = {
    "TEXT": "str",
    "PATH": "str | PathLike[str]",
    "FLAG": "bool | str",
    "SIZE": "int | str",
    "SIZE-OR-AUTO": "int | str",
    "DURATION": "float | str",
    "DURATION-OR-ZERO": "float | str",
    "WHOLE": "int | str",
    "NUMBER": "float | str",
    "ADDRESS": "str",
    "ADDRESSES": "str | Sequence[str]",
    "PUBLIC-KEY": "str",
    "PORT-PAIR": "int | str | Sequence[int]",
    "PORT-SPAN": "str",
    "SPAN": "str",
    "NETWORKS": "str | Rule | Sequence[str | Rule]",
}

_HEAD: Final = '''\
"""The types of the options that ``connect``, ``Client.to`` and ``Server`` take as keywords.

Generated from the declarations of the options by `make docs`. None means that an option is not given.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from aeron_spark.protocol.access import Rule
'''


def keyword_source() -> str:
    """Return the text of ``keywords.py``."""
    return "\n".join((_HEAD, *_classes()))


def _classes() -> Iterator[str]:
    options = all_options()
    yield from _class("EndpointKeywords", "TypedDict", "of a client and of a server", options, ENDPOINT)
    yield from _class("ClientOptions", "EndpointKeywords", "of a client", options, CLIENT)
    yield from _class("ServerOptions", "EndpointKeywords", "of a server", options, SERVER)


def _class(name: str, base: str, owner: str, options: tuple[Option, ...], where: frozenset[object]) -> Iterator[str]:
    yield f'\nclass {name}({base}, total=False):\n    """The options {owner}, as keywords."""\n'
    for option in options:
        if option.where == where:
            yield f"    {option.argument}: {_type(option)} | None"
            yield _docstring(option.meaning)


def _type(option: Option) -> str:
    if option.type.choices:
        return f"Literal[{', '.join(f'{choice!r}'.replace(chr(39), chr(34)) for choice in option.type.choices)}]"
    return _TYPES[option.type.metavar]


def _docstring(meaning: str) -> str:
    text = meaning.replace("\\", "\\\\")
    lines = textwrap.wrap(text, WIDTH - len('    """"""'), break_long_words=False, break_on_hyphens=False)
    if len(lines) == 1:
        return f'    """{lines[0]}"""\n'
    lines = textwrap.wrap(text, WIDTH - len('    """'), break_long_words=False, break_on_hyphens=False)
    return '    """' + "\n    ".join(lines) + '\n    """\n'


if __name__ == "__main__":
    sys.stdout.write(keyword_source())
