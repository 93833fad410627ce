"""Parses the XML of a schema into elements, with its includes.

A schema may come from another organisation, so the parser reads no entities and no file outside the schema's folder: it
refuses ``<!DOCTYPE``, and has limits for size and depth.
"""

from __future__ import annotations

import xml.parsers.expat as expat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aeron_spark.errors import DataFormatError

MAX_BYTES: Final = 16 << 20  # of one file; the largest public schema has 0.3 MB
MAX_DEPTH: Final = 64  # nested elements
MAX_ELEMENTS: Final = 200_000  # of a schema with its includes
MAX_INCLUDES: Final = 32

_XINCLUDE: Final = "http://www.w3.org/2001/XInclude"
_SEPARATOR: Final = " "  # between namespace and name; neither can contain it


@dataclass(slots=True)
class Element:
    """An element without its namespace. ``attributes`` has only those without a namespace."""

    name: str
    attributes: dict[str, str]
    file: str
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def error(self, what: str, remedy: str = "Correct the schema.") -> DataFormatError:
        """Return the error for this element, with its file, line and name."""
        named = f" {self.attributes['name']!r}" if "name" in self.attributes else ""
        return DataFormatError(f"{self.file}, line {self.line}: <{self.name}>{named} {what}", remedy=remedy)

    def required(self, attribute: str) -> str:
        """Return an attribute. Raises DataFormatError if it is missing."""
        value = self.attributes.get(attribute, "").strip()
        if not value:
            raise self.error(f"has no attribute '{attribute}'")
        return value

    def number(self, attribute: str, default: int, high: int = (1 << 31) - 1) -> int:
        """Return an attribute that is a whole number of at least 0. Raises DataFormatError for another text."""
        text = self.attributes.get(attribute, "").strip()
        if not text:
            return default
        if not (text.isascii() and text.isdecimal()) or int(text) > high:
            raise self.error(f"has {attribute}={text[:40]!r}, expected a number from 0 to {high}")
        return int(text)


def parse_file(path: Path) -> Element:
    """Return the root element of a schema file. Raises DataFormatError, and OSError if the file cannot be read."""
    reader = _Includes(path.resolve().parent)
    return reader.read(path.resolve(), path.name)


def parse_text(text: str) -> Element:
    """Return the root element of a schema that is given as a text. Raises DataFormatError, also for an include."""
    return _Includes(None).parse(text, "the schema's text", ())


class _Includes:
    """Reads files and replaces includes by what they include."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._elements = 0
        self._files = 0

    def read(self, path: Path, name: str, parents: tuple[Path, ...] = ()) -> Element:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        return self.parse(data, name, (*parents, path))

    def parse(self, data: str | bytes, name: str, files: tuple[Path, ...]) -> Element:
        if len(data) > MAX_BYTES:
            raise DataFormatError(
                f"{name} is longer than {MAX_BYTES} bytes", remedy="Divide the schema, or leave out unused messages."
            )
        root = _Parser(name, MAX_ELEMENTS - self._elements).parse(data)
        self._elements += sum(1 for _ in _walk(root))
        self._expand(root, files)
        return root

    def _expand(self, element: Element, files: tuple[Path, ...]) -> None:
        for index, child in enumerate(element.children):
            if child.name == _INCLUDE:
                element.children[index] = self._included(child, files)
            else:
                self._expand(child, files)

    def _included(self, element: Element, files: tuple[Path, ...]) -> Element:
        href = element.required("href")
        if element.attributes.get("parse", "xml") != "xml":
            raise element.error("includes a text, and only XML can be included", "Include an XML file.")
        if self._folder is None:
            raise element.error(
                f"includes {href!r}, but a schema that is given as a text has no folder",
                "Give the path of the schema's file instead.",
            )
        path = (files[-1].parent / href).resolve()
        if not path.is_relative_to(self._folder):
            raise element.error(
                f"includes {href!r}, which is not in the schema's folder", "Put the included file beside the schema."
            )
        if path in files:
            raise element.error(f"includes {href!r}, which includes this file", "Remove one of the includes.")
        self._files += 1
        if self._files > MAX_INCLUDES:
            raise element.error(f"is include number {self._files}, the limit is {MAX_INCLUDES}", "Join the files.")
        try:
            return self.read(path, href, files)
        except OSError as error:
            raise element.error(
                f"includes {href!r}, which cannot be read: {error.strerror}", "Put the included file beside the schema."
            ) from error


_INCLUDE: Final = _XINCLUDE + _SEPARATOR + "include"


def _walk(element: Element) -> Iterator[Element]:
    yield element
    for child in element.children:
        yield from _walk(child)


class _Parser:
    """Makes elements of one text."""

    def __init__(self, file: str, max_elements: int) -> None:
        self._file = file
        self._left = max_elements
        self._open: list[Element] = []
        self._root: Element | None = None
        self._expat = expat.ParserCreate(namespace_separator=_SEPARATOR)
        self._expat.StartDoctypeDeclHandler = self._refuse_doctype
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.CharacterDataHandler = self._characters
        self._expat.buffer_text = True

    def parse(self, data: str | bytes) -> Element:
        try:
            self._expat.Parse(data, True)
        except expat.ExpatError as error:
            raise DataFormatError(
                f"{self._file}, line {error.lineno}: not well-formed XML: {expat.ErrorString(error.code)}",
                remedy="Give the XML file of an SBE schema.",
            ) from None
        except (LookupError, ValueError) as error:  # an encoding that Python does not have
            raise DataFormatError(f"{self._file}: {error}", remedy="Save the schema as UTF-8.") from None
        assert self._root is not None  # expat has refused a text without an element
        return self._root

    def _refuse_doctype(self, *_: object) -> None:
        raise DataFormatError(
            f"{self._file}, line {self._expat.CurrentLineNumber}: the schema has a <!DOCTYPE, which could include "
            "other files",
            remedy="Remove the document type declaration. SBE schemas need none.",
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, local = name.rpartition(_SEPARATOR)
        plain = {key: value for key, value in attributes.items() if _SEPARATOR not in key}
        kept = name if namespace == _XINCLUDE else local
        element = Element(kept, plain, self._file, self._expat.CurrentLineNumber)
        self._left -= 1
        if self._left < 0 or len(self._open) >= MAX_DEPTH:
            raise element.error(f"is too much: the limits are {MAX_ELEMENTS} elements, and {MAX_DEPTH} nested ones")
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()

    def _characters(self, text: str) -> None:
        self._open[-1].text += text
