"""Parses deploy/Dockerfile, for tests without Docker."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.programs import ROOT

PATH: Final = ROOT / "deploy" / "Dockerfile"
INSTRUCTIONS: Final = frozenset(
    {"FROM", "RUN", "COPY", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
)


@dataclass(frozen=True)
class Instruction:
    """An instruction and its arguments, as one line."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """The words of a JSON list, such as that of ENTRYPOINT, or of a line of shell."""
        start = self.text.find("[") if self.name in ("ENTRYPOINT", "CMD", "HEALTHCHECK") else -1
        return json.loads(self.text[start:]) if start >= 0 else shlex.split(self.text)


def parse(text: str) -> Iterator[Instruction]:
    """Yield the instructions. Raises ValueError for an unknown one."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        if not line.strip():
            continue
        name, _, rest = line.partition(" ")
        if name not in INSTRUCTIONS:
            raise ValueError(f"{line!r}: unknown instruction")
        yield Instruction(name, rest.strip())


def instructions(name: str) -> list[Instruction]:
    """Return the instructions of deploy/Dockerfile with this name."""
    return [one for one in parse(PATH.read_text()) if one.name == name]


def only(name: str) -> Instruction:
    (found,) = instructions(name)
    return found


def environment() -> dict[str, str]:
    """Return the variables of ENV."""
    return dict(word.split("=", 1) for one in instructions("ENV") for word in one.words)
