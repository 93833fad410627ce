from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import benchmarks
from benchmarks.checks import totals_of_corpus, totals_of_values
from benchmarks.corpora import Corpus
from benchmarks.flight_client import flight_batches
from benchmarks.flight_server import PrebuiltServer
from benchmarks.programs import run_program
from benchmarks.raw_batches import SCHEMA, corpus_batches, repeated_batch, repeated_file

CORPUS = Corpus("mixed", 5, 40, 1_000)
VALUE = pa.schema([("value", pa.binary())])


def test_the_batches_of_a_corpus_have_all_its_values() -> None:
    batches = list(corpus_batches(CORPUS, 300))
    assert [batch.num_rows for batch in batches] == [300, 300, 300, 100]
    assert {batch.schema for batch in batches} == {SCHEMA}
    values = [value for batch in batches for value in batch["value"].to_pylist()]
    assert totals_of_values(values) == totals_of_corpus(CORPUS)
    assert [batch["position"][0].as_py() for batch in batches[:2]] == [0, 300 * 128]


def test_a_chosen_column_is_the_only_one_that_is_made() -> None:
    assert {batch.schema for batch in corpus_batches(CORPUS, 300, VALUE)} == {VALUE}


@pytest.mark.parametrize("batch_rows", [300, 1_000, 5_000])
def test_a_repeated_batch_has_as_many_rows_as_the_corpus(batch_rows: int) -> None:
    batches = list(repeated_batch(CORPUS, batch_rows, SCHEMA))
    assert sum(batch.num_rows for batch in batches) == CORPUS.rows
    assert batches[0].num_rows == min(batch_rows, CORPUS.rows)


def test_no_rows_are_no_batches() -> None:
    assert list(repeated_batch(Corpus("", 5, 5, 0), 10, SCHEMA)) == []


@pytest.mark.parametrize("schema", [SCHEMA, VALUE], ids=["all", "value"])
def test_a_flight_client_gets_the_rows_of_the_server(schema: pa.Schema) -> None:
    server = PrebuiltServer(list(corpus_batches(CORPUS, 300)))
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        batches = list(flight_batches(server.port, schema.names, schema))
    finally:
        server.shutdown()
        thread.join(10)
    assert {batch.schema for batch in batches} == {schema}
    assert totals_of_values(v for batch in batches for v in batch["value"].to_pylist()) == totals_of_corpus(CORPUS)


@pytest.mark.slow
def test_the_program_of_the_server_says_its_port_and_ends_with_its_input() -> None:
    with run_program("benchmarks.flight_server", CORPUS.shortest, CORPUS.longest, CORPUS.rows, 300) as request:
        batches = list(flight_batches(int(request("port")), ["value"], VALUE))
    assert totals_of_values(v for batch in batches for v in batch["value"].to_pylist()) == totals_of_corpus(CORPUS)


@pytest.mark.slow
def test_a_program_that_ends_early_is_an_error() -> None:
    with (
        pytest.raises(RuntimeError, match=r"benchmarks.flight_server exited with 1 before it was ready"),
        run_program("benchmarks.flight_server", "no number"),
    ):
        raise AssertionError("no server can run")


@pytest.mark.slow
def test_a_worker_needs_no_package_to_make_the_batches(tmp_path: Path) -> None:
    cloudpickle.register_pickle_by_value(benchmarks)
    try:
        (tmp_path / "made").write_bytes(cloudpickle.dumps(lambda: list(repeated_batch(CORPUS, 300, SCHEMA))))
        (tmp_path / "read").write_bytes(cloudpickle.dumps(flight_batches))
    finally:
        cloudpickle.unregister_pickle_by_value(benchmarks)
    program = (
        "import pickle; made, read = (pickle.loads(open(name, 'rb').read()) for name in ('made', 'read')); "
        "assert callable(read); print(sum(batch.num_rows for batch in made()))"
    )
    command = [sys.executable, "-I", "-c", program]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert completed.stdout.strip() == "1000", completed.stderr


def test_the_batch_of_a_file_is_repeated_with_the_wanted_columns(tmp_path: Path) -> None:
    path = str(tmp_path / "batch.arrow")
    written = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, written.schema) as writer:
        writer.write_table(written)
    batches = list(repeated_file(path, 7, pa.schema([("b", pa.string())])))
    assert [batch.to_pydict() for batch in batches] == [{"b": ["x", "y", "z"]}] * 2 + [{"b": ["x"]}]
