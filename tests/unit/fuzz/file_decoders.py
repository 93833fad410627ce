"""The decoders of files that somebody hands over: a backup, a store, a schema, a file of keys."""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final, get_args

import msgspec
from msgspec import inspect

from aeron_spark.aeron import archive_catalog as catalog
from aeron_spark.backup import manifest
from aeron_spark.backup.copying import LAST_BACKUP_FILE, LastBackup, read_last_backup
from aeron_spark.backup.frames import RecordingLayout, check_term
from aeron_spark.errors import DataFormatError, DataLossError
from aeron_spark.keys.clients_file import ClientsFile, parse_clients
from aeron_spark.keys.key_files import KnownServers
from aeron_spark.protocol.keypair import new_keypair, public_text
from aeron_spark.sbe.model import Schema
from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import SbeSettings
from aeron_spark.sbe.table import MessageColumns
from aeron_spark.streams import journal
from aeron_spark.streams.archive_mark import VERSION as MARK_VERSION
from aeron_spark.streams.archive_mark import MarkContent, read_mark
from aeron_spark.streams.definition import Definition, read_definition, write_definition
from aeron_spark.streams.journal_records import (
    CommitRecord,
    Epoch,
    Purged,
    Record,
    Snapshot,
    WriterState,
    decode_record,
    encode_record,
)
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.model import StreamCut
from aeron_spark.streams.time_index import TimeIndex
from tests.sbe_random import RandomSchema
from tests.unit.fuzz.forms import BYTES, JSON, WORDS, XML, colliding_numbers, messagepack
from tests.unit.fuzz.fuzzing import Decoder
from tests.unit.fuzz.values import random_value
from tests.unit.sbe.schemas import schema_text

_PARTITIONS: Final = 2
_PATH: Final = Path("stream/journal")


_FOLDER: Final = tempfile.TemporaryDirectory(prefix="aeron-spark-fuzz-")  # until the process ends


def folder_with(name: str, content: bytes) -> Path:
    """Return a folder with a file of this name and content, which the next call replaces."""
    folder = Path(_FOLDER.name)
    (folder / name).write_bytes(content)
    return folder


_RECORDS: Final = tuple(inspect.type_info(kind) for kind in get_args(Record))
_COMMITTED: Final[dict[str, Callable[[Random], Any]]] = {
    "ends": lambda source: source.choice(({}, {0: 96}, {1: 64, 0: 128})),
    "starts": lambda source: source.choice(({}, {0: 0}, {1: 32})),
    "rows": lambda source: source.choice(({}, {0: 3})),
    "content": lambda source: source.choice(("", "raw")),
    "schema": lambda source: None,
    "pending": lambda source: {},
    "joined": lambda source: [],
}
_INDEX: Final = (9).to_bytes(8, "little")
_SNAPSHOT: Final = {
    "starts": lambda source: [0, 0],
    "ends": lambda source: [96, 64],
    "rows": lambda source: [3, 0],
    "times": lambda source: [_INDEX, b""],
    "begins": lambda source: [bytes(8), b""],
    "joined": lambda source: source.choice(([], [b"\1", b""])),
    "checked_from": lambda source: source.choice(([], [64, 0])),
}


def _record(source: Random) -> bytes:
    kind: Any = source.choice(_RECORDS)
    given = _COMMITTED | _SNAPSHOT if kind.cls.__name__ == "Snapshot" else _COMMITTED
    if kind.cls.__name__ == "Epoch":
        given = given | {"ends": lambda source: (0, 0)}
    if kind.cls.__name__ == "ContentFixed":
        given = given | {"schema": lambda source: b""}
    record: Any = random_value(kind, source, given)
    return encode_record(record)


def _apply(record: Record) -> Record:
    """Apply a record to a new ledger, and a transaction after it."""
    ledger = Ledger(_PARTITIONS)
    try:
        ledger.apply(record)
    except DataFormatError:
        return record
    ledger.epochs(0)
    ledger.position_at(10)
    ledger.stamp("w-1")
    decode_record(encode_record(ledger.snapshot()))
    for index in ledger.times:
        index.thin(2**62)
        index.forget_before(32)
        index.time_of(7)
    return record


def _use_record(record: Record) -> None:
    encode_record(record)
    _apply(record)


def _long_records(size: int) -> dict[str, bytes]:
    keys = dict.fromkeys(colliding_numbers(size // 6), 0)
    runs = tuple(str(number) for number in range(size // 6))
    writers = {str(number): WriterState("") for number in range(size // 70)}
    empty = Snapshot(0, 0, "", None, {}, [0, 0], [0, 0], [0, 0], [b"", b""], [b"", b""], {})
    return {
        "partitions": encode_record(CommitRecord("", "", 0, 1, keys)),
        "pending": encode_record(Purged({}, keys)),
        "ends": encode_record(Epoch(1, (0,) * size, 0)),
        "runs": encode_record(msgspec.structs.replace(empty, writers={"w": WriterState("", earlier=runs)})),
        "writers": encode_record(msgspec.structs.replace(empty, writers=writers)),
    }


def _journal(source: Random) -> bytes:
    entries = b"".join(journal.encode_entry(_record(source)) for _ in range(source.randrange(4)))
    return journal.FILE_HEAD + entries + bytes(source.choice((0, 0, 3)))


def _long_journals(size: int) -> dict[str, bytes]:
    entry = journal.encode_entry(b"")
    return {"empty records": journal.FILE_HEAD + entry * (size // len(entry)), "zeros": journal.FILE_HEAD + bytes(size)}


def _index(source: Random) -> bytes:
    return b"".join(source.randrange(2**62).to_bytes(8, "little") for _ in range(2 * source.randrange(4)))


def _decode_index(data: bytes) -> TimeIndex:
    half = len(data) // 16 * 8
    return TimeIndex.from_bytes(data[:half], data[half : 2 * half], b"" if len(data) % 2 else data[2 * half :])


def _use_index(index: TimeIndex) -> None:
    index.find(10)
    index.begin_after(32)
    index.begin_before(32)
    index.thin(2**62, 100)
    index.forget_before(64)
    TimeIndex.from_bytes(*index.to_bytes())


_FILES: Final = (
    manifest.FileEntry("streams/prices/journal", 700, "a0"),
    manifest.FileEntry("streams/prices/definition.json", 300, "b1"),
    manifest.FileEntry("archive/1-0.rec", 64, "c2", 4_096),
    manifest.FileEntry("archive/1-4096.rec", 32, "d3"),
)


def _manifest(source: Random) -> bytes:
    epoch = f"{source.randrange(2**64):016x}"
    partition = manifest.PartitionEntry(1, "f", 0, source.randrange(4_096), epoch)
    stream = manifest.StreamEntry("prices", 1, epoch, source.randrange(9), (partition,))
    files = tuple(source.sample(_FILES, source.randrange(len(_FILES) + 1)))
    damaged = {"orders": "its journal is damaged"} if source.random() < 0.5 else {}
    return manifest.encode_manifest(
        manifest.Manifest(manifest.VERSION, "1.0", "2026-01-01T00:00:00Z", 1, (stream,), files, damaged)
    )


def _sealed_manifest(data: bytes) -> bytes:
    """Make the checksum of the members right, if they are JSON."""
    try:
        members = json.loads(data)
        members.pop(manifest.CHECK, None)
        text = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
        return json.dumps({**members, manifest.CHECK: hashlib.sha256(text).hexdigest()}).encode()
    except (ValueError, RecursionError, AttributeError, TypeError):
        return data


def _long_manifests(size: int) -> dict[str, bytes]:
    partition = manifest.PartitionEntry(1, "", 0, 0, "0" * 16)
    stream = manifest.StreamEntry("prices", 0, "0" * 16, 0, (partition,))
    files = [manifest.FileEntry(f"archive/1-{number}.rec", 1, "") for number in range(size // 80)]
    found = manifest.Manifest(manifest.VERSION, "", "", 1, (stream,), tuple(files))
    return {"files": manifest.encode_manifest(found)}


def _use_manifest(found: manifest.Manifest) -> None:
    assert found.bytes >= 0
    manifest.decode_manifest(manifest.encode_manifest(found), "manifest.json")


def _read_mark(data: bytes) -> MarkContent | None:
    return read_mark(folder_with("mark", data) / "mark")


def _read_last_backup(data: bytes) -> LastBackup | None:
    return read_last_backup(folder_with(LAST_BACKUP_FILE, data))


def _mark(source: Random) -> bytes:
    found: Any = random_value(inspect.type_info(MarkContent), source, {"v": lambda source: MARK_VERSION})
    return msgspec.json.encode(found)


def _last_backup(source: Random) -> bytes:
    return msgspec.json.encode(LastBackup(source.choice((0.5, 1.7e9)), "/backup", 7, 3.5))


def _definition(source: Random) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_definition(Path(folder), _new_definition(source))
        return next(Path(folder).iterdir()).read_bytes()


def _new_definition(source: Random) -> Definition:
    partitions = source.randrange(1, 4)
    return Definition("prices", partitions, tuple(range(partitions)), 1 << 16)


def _sealed_definition(data: bytes) -> bytes:
    try:
        found = json.loads(data)
        text = json.dumps(found["stream"], sort_keys=True, separators=(",", ":")).encode()
        return json.dumps({**found, "crc": zlib.crc32(text)}).encode()
    except (ValueError, RecursionError, KeyError, TypeError):
        return data


def _use_definition(definition: Definition) -> None:
    definition.renamed("other").with_reused_name("prices").ended(7).reopened().altered(retention_bytes=1)
    assert definition.max_message_bytes > 0
    str(definition.names_before)


def _cut(source: Random) -> bytes:
    given = {"definition": _new_definition, "epoch": lambda source: source.randrange(2**64)}
    found: Any = random_value(inspect.type_info(StreamCut), source, given)
    return json.dumps(found.to_json()).encode()


def _decode_cut(data: bytes) -> StreamCut:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataFormatError(str(error)) from None
    return StreamCut.from_json(value)


_FRAME: Final = struct.Struct("<ibBHiiiiq")
_TERM: Final = 1 << 16
_LAYOUTS: Final = [RecordingLayout(7, _TERM, 1_408, 5, content) for content in ("raw", "framed")]


def _term(source: Random) -> bytes:
    data = bytearray()
    for _ in range(source.randrange(1, 5)):
        body = source.randbytes(source.choice((0, 5, 80)))
        data += _FRAME.pack(32 + len(body), 0, 0xC0, 1, len(data), 77, 5, 10, 0) + body + bytes(-len(body) % 32)
    return bytes(data)


def _check_terms(data: bytes) -> list[Any]:
    whole = memoryview(bytes(data)[: len(data) // 32 * 32])
    return [check_term(whole, 3 * _TERM, layout) for layout in _LAYOUTS] if len(whole) else []


def _long_terms(size: int) -> dict[str, bytes]:
    size = min(size, _TERM) // 32 * 32
    frames = b"".join(_FRAME.pack(32, 0, 0xC0, 1, at, 77, 5, 10, 0) for at in range(0, size, 32))
    chunks = b"".join(
        _FRAME.pack(1_408, 0, 0, 1, at, 77, 5, 10, 0) + bytes(1_376) for at in range(0, size // 1_408 * 1_408, 1_408)
    )
    sessions = b"".join(_FRAME.pack(32, 0, 0xC0, 1, at, at // 32 % 2, 5, 10, 0) for at in range(0, size, 32))
    return {"frames": frames, "a message": chunks, "frames of two sessions": sessions}


def _use_terms(faults: list[Any]) -> None:
    for fault in faults:
        assert fault is None or 3 * _TERM <= fault.position <= fault.end


_CATALOG_NUMBERS: Final = struct.Struct("<iiqqqqqiiiiii")


def _catalog(source: Random) -> bytes:
    data = catalog.CATALOG_HEADER.pack(3 << 16, catalog.CATALOG_HEADER_LENGTH, 9, 1_024)
    data = data.ljust(catalog.CATALOG_HEADER_LENGTH, b"\0")
    for number in range(source.randrange(4)):
        texts = b"".join(len(text).to_bytes(4, "little") + text for text in (b"aeron:ipc", b"aeron:ipc", b"a:1"))
        body = _CATALOG_NUMBERS.pack(1, 0, number, 5, -1, 0, -1, 7, 1 << 20, 1 << 16, 1_408, 77, 5) + texts
        entry = catalog.ENTRY_HEADER.pack(len(body), catalog.VALID, 0).ljust(catalog.ENTRY_HEADER_LENGTH, b"\0") + body
        data += entry.ljust(1_024, b"\0")
    return data


def _long_catalogs(size: int) -> dict[str, bytes]:
    head = catalog.CATALOG_HEADER.pack(3 << 16, catalog.CATALOG_HEADER_LENGTH, 2**40, 1).ljust(
        catalog.CATALOG_HEADER_LENGTH, b"\0"
    )
    entry = catalog.ENTRY_HEADER.pack(1, catalog.VALID, 0).ljust(catalog.ENTRY_HEADER_LENGTH + 1, b"\0")
    return {"entries": head + entry * (size // len(entry))}


def _use_catalog(found: catalog.Catalog) -> None:
    for entry in found.entries.values():
        assert isinstance(entry.is_checksum_right, bool)


_KEYS: Final = [public_text(new_keypair(Random(number).randbytes).public) for number in range(4)]


def _clients(source: Random) -> bytes:
    lines = [
        "# a comment", "role prices streams=prices.*:read", "role=prices name=desk-7 tag=desk-* ",
        "streams=orders.*:read,write writers=edge-* connections=4 name=edge expires=2027-06-30 ",
        "all name=ops from=10.0.0.0/8,::1 bytes-in=1GiB messages=send,receive files=send calls=a.b partitions=3 ", "",
    ]  # fmt: skip
    keys = iter(source.sample(_KEYS, 4))
    chosen = source.sample(lines, source.randrange(1, 6))
    return "\n".join(line + next(keys) + " c" if line.endswith(" ") else line for line in chosen).encode()


def _long_clients(size: int) -> dict[str, bytes]:
    key = public_text(new_keypair(Random(9).randbytes).public)
    each = 40
    chain = "".join(f"role r{number} role=r{number + 1},r{number + 1}\n" for number in range(size // each))
    return {
        "a chain of roles": f"{chain}role r{size // each} all\nrole=r0 {key}".encode(),
        "a short chain of roles": (
            "".join(f"role r{one} role=r{one + 1},r{one + 1}\n" for one in range(60)) + "role r60 all"
        ).encode(),
        "keys of one name": b"".join(b"name=a " + key.encode() + b"\n" for _ in range(size // 70)),
        "unknown roles": "\n".join(f"role r{number} role=s{number}" for number in range(size // 25)).encode(),
        "options": b"tag=a " * (size // 6) + key.encode(),
        "wrong lines": b"a\n" * (size // 2),
    }


def _use_clients(found: ClientsFile) -> None:
    try:
        grants = found.grants("clients")
    except DataFormatError:
        return
    for grant in grants.values():
        grant.may_use("prices.eu", "read")
        grant.may_call("a.b")
        grant.may_write_as("edge-1")
        grant.refusal("desk-1", None, 0.0)


class _KnownServersFile:
    """Reads lines of known servers from a file, which the class needs."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def decode(self, data: bytes) -> Any:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "known_servers"
        path.write_bytes(data)
        path.chmod(0o600)
        return dict(KnownServers(path).all())


def _known(source: Random) -> bytes:
    hosts = ("localhost 20121", "10.0.0.1 20121", "::1 20121", "ipc:/dev/shm/aeron%20x 0", "feeds.example 1")
    lines = [f"{host} {source.choice(_KEYS)} a comment" for host in source.sample(hosts, source.randrange(3))]
    return "\n".join(["# servers", *lines]).encode()


def _long_known(size: int) -> dict[str, bytes]:
    lines = "\n".join(
        f"10.{number >> 16}.{number >> 8 & 255}.{number & 255} 1 {_KEYS[0]}" for number in range(size // 75)
    )
    return {"servers": lines.encode()}


def _long_schemas(size: int) -> dict[str, bytes]:
    def schema(types: str, body: str) -> bytes:
        return schema_text(types, body).encode()

    count = size // 45
    fields = "".join(f'<field name="f{number}" id="1" type="uint8"/>' for number in range(count))
    enums = "".join(f'<validValue name="v{number}">{number}</validValue>' for number in range(count))
    members = "".join(f'<type name="m{number}" primitiveType="int8"/>' for number in range(count))
    doubling = '<composite name="c0"><type name="a" primitiveType="int8"/></composite>' + "".join(
        f'<composite name="c{one}"><ref name="a" type="c{one - 1}"/><ref name="b" type="c{one - 1}"/></composite>'
        for one in range(1, min(60, size // 80))
    )
    empty = '<composite name="c0"/>' + doubling.partition("</composite>")[2]
    chain = "".join(
        f'<composite name="c{one}"><ref name="a" type="c{one + 1}"/></composite>' for one in range(size // 60)
    )
    constants = "".join(
        f'<field name="f{one}" id="1" type="e" presence="constant" valueRef="e.v{count // 2 - 1}"/>'
        for one in range(size // 200)
    )
    enum = f'<enum name="e" encodingType="uint64">{enums}</enum>'
    groups = "".join(f'<group name="g{number}" id="1"></group>' for number in range(count))
    return {
        "fields": schema("", fields),
        "an enum": schema(enum, '<field name="f" id="1" type="e"/>'),
        "constants of an enum": schema(enum.replace(enums, enums[: len(enums) // 2].rpartition("<")[0]), constants),
        "composites of empty composites": schema(empty, '<field name="f" id="1" type="c59"/>'),
        "a chain of composites": schema(chain, '<field name="f" id="1" type="c0"/>'),
        "a composite": schema(f'<composite name="c">{members}</composite>', '<field name="f" id="1" type="c"/>'),
        "composites of composites": schema(doubling, '<field name="f" id="1" type="c59"/>'),
        "groups": schema("", groups),
        "nested groups": schema("", '<group name="g" id="1">' * 60 + "</group>" * 60),
    }


def _schema(source: Random) -> bytes:
    return RandomSchema(source).text.encode()


def _use_schema(schema: Schema) -> None:
    columns = MessageColumns(schema, SbeSettings())
    columns.table()
    str(columns.arrow_schema)


FILES: Final = (
    Decoder("journal record", decode_record, _record, messagepack(), use=_use_record, long_samples=_long_records),
    Decoder(
        "journal",
        lambda data: journal.read_entries(data, _PATH),
        _journal,
        BYTES,
        (DataFormatError, DataLossError),
        long_samples=_long_journals,
    ),
    Decoder("time index", _decode_index, _index, BYTES, use=_use_index),
    Decoder(
        "manifest",
        lambda data: manifest.decode_manifest(data, "manifest.json"),
        _manifest,
        JSON,
        (DataFormatError, DataLossError),
        use=_use_manifest,
        seal=_sealed_manifest,
        long_samples=_long_manifests,
        share=4,
    ),
    Decoder(
        "archive mark", lambda data: read_mark(folder_with("mark", data) / "mark"), _mark, JSON, use=msgspec.json.encode
    ),
    Decoder(
        "definition",
        lambda data: read_definition(folder_with("definition.json", data)),
        _definition,
        JSON,
        use=_use_definition,
        seal=_sealed_definition,
        share=4,
    ),
    Decoder(
        "last backup",
        lambda data: read_last_backup(folder_with(LAST_BACKUP_FILE, data)),
        _last_backup,
        JSON,
        (),
        use=repr,
    ),
    Decoder("cut", _decode_cut, _cut, JSON, use=StreamCut.to_json, share=4),
    Decoder("term", _check_terms, _term, BYTES, (), use=_use_terms, long_samples=_long_terms, share=8),
    Decoder(
        "catalog",
        lambda data: catalog.parse_catalog(data, "catalog"),
        _catalog,
        BYTES,
        (DataLossError,),
        use=_use_catalog,
        long_samples=_long_catalogs,
        share=4,
    ),
    Decoder(
        "clients file",
        lambda data: parse_clients(data.decode("utf-8", "replace")),
        _clients,
        WORDS,
        (),
        use=_use_clients,
        long_samples=_long_clients,
        share=4,
    ),
    Decoder("known servers", _KnownServersFile().decode, _known, WORDS, long_samples=_long_known, share=4),
    Decoder(
        "SBE schema",
        lambda data: load_schema("<" + data.decode("utf-8", "replace").lstrip("<")),
        _schema,
        XML,
        use=_use_schema,
        long_samples=_long_schemas,
        share=16,
    ),
)
