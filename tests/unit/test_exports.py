"""The package has exactly its public names, and its import loads nothing heavy."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from importlib import metadata

import pytest

import aeron_spark
from aeron_spark import errors
from tests.programs import CONNECTOR

# Users write these names: they are a contract.
ERRORS = {
    *("AeronSparkError", "ConnectError", "DataFormatError", "DataLossError", "EndedError", "IdentityError"),
    *("InUseError", "OptionError", "RefusedError", "RemoteError", "ServerKeyChanged", "SessionLost", "SetupError"),
    *("StillWorking", "TamperedError", "TransportError", "UsageError", "WaitTimeout"),
}
LAZY = {"__version__", "node", "spark"}
FUNCTIONS = {"from_sbe"}
ENDPOINT = {
    *("Client", "ClientOptions", "Connection", "ReceivedFile", "Server", "ServerOptions", "UnconfirmedTransfer"),
    "connect",
}
WRITING = {
    *("write", "write_columns", "write_json", "commit", "abort", "close", "accept_loss"),
    *("stream", "writer_id", "last", "last_token"),
}
# The classes of streams, with their names for programs: an editor's list has no internals.
STREAMS = {
    "BufferedWriter": WRITING | {"acknowledged", "flush", "outcome", "trouble", "unsent"},
    "Positions": {"copy", "epochs", "fingerprints", "from_json", "of", "to_json"},
    "StreamReader": {"partitions", "payload", "positions", "schema", "stop", "stream"},
    "StreamWriter": WRITING,
}
HEAVY = ("pyspark", "jpype", "pyarrow", "numpy", "click", "rich", "aeron_spark.node", "aeron_spark.options")


def output_of(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={"PYTHONPATH": str(CONNECTOR)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def test_the_package_has_exactly_the_public_names() -> None:
    assert set(aeron_spark.__all__) == ERRORS | LAZY | FUNCTIONS | ENDPOINT | set(STREAMS) | {"StreamInfo", "aio"}
    assert set(aeron_spark.__all__) <= set(dir(aeron_spark))


def test_every_error_of_the_tree_is_public_and_the_same_class() -> None:
    tree = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert tree == ERRORS
    for name in ERRORS:
        assert getattr(aeron_spark, name) is getattr(errors, name)
        assert issubclass(getattr(aeron_spark, name), aeron_spark.AeronSparkError)


def test_the_version_is_that_of_the_distribution() -> None:
    assert aeron_spark.__version__ == metadata.version("aeron-spark")


def test_the_import_loads_nothing_heavy() -> None:
    code = f"import sys, aeron_spark; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert output_of(code) == "[]"


@pytest.mark.parametrize("name", sorted(LAZY - {"__version__"}))
def test_a_lazy_name_is_loaded_at_its_first_use_and_starts_no_jvm(name: str) -> None:
    code = (
        f"import sys, aeron_spark; before = 'aeron_spark.{name}' in sys.modules; part = aeron_spark.{name}; "
        "print(before, part.__name__, 'jpype' in sys.modules)"
    )
    assert output_of(code) == f"False aeron_spark.{name} False"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*ENDPOINT, *STREAMS, "StreamInfo", "aio"}))
def test_an_endpoint_name_is_loaded_at_its_first_use_and_starts_no_jvm(name: str) -> None:
    code = (
        f"import sys, aeron_spark; before = 'aeron_spark.protocol' in sys.modules; part = aeron_spark.{name}; "
        "print(before, part.__name__, 'jpype._core' in sys.modules and __import__('jpype').isJVMStarted())"
    )
    assert output_of(code) == f"False {'aeron_spark.aio' if name == 'aio' else name} False"


@pytest.mark.parametrize("name", STREAMS)
def test_a_class_of_streams_has_only_names_for_programs(name: str) -> None:
    kind = getattr(aeron_spark, name)
    source = textwrap.dedent(inspect.getsource(kind))
    attributes = {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    inherited = set(dir(dict)) if issubclass(kind, dict) else set()
    own = set(vars(kind)) | {attribute for base in kind.__mro__ for attribute in dir(base)} | attributes
    assert {one for one in own if not one.startswith("_")} - (inherited - {"copy"}) == STREAMS[name]


@pytest.mark.parametrize("name", STREAMS)
def test_a_class_of_streams_has_complete_annotations(name: str) -> None:
    kind = getattr(aeron_spark, name)
    for one in STREAMS[name]:
        member = getattr(kind, one, None)
        function = member.fget if isinstance(member, property) else member
        if callable(function):
            signature = inspect.signature(function)
            assert signature.return_annotation is not inspect.Signature.empty, one
            given = [parameter for at, parameter in signature.parameters.items() if at not in ("self", "cls")]
            assert all(parameter.annotation is not inspect.Parameter.empty for parameter in given), one


def test_the_version_loads_neither_spark_nor_java() -> None:
    code = "import sys, aeron_spark; aeron_spark.__version__; print('pyspark' in sys.modules, 'jpype' in sys.modules)"
    assert output_of(code) == "False False"


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'aeron_spark' has no attribute 'conect'"):
        getattr(aeron_spark, "conect")  # noqa: B009  (a constant name would not pass the type checker)
