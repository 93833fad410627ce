"""No input makes a decoder raise another error than the ones it documents, or take more time or memory than it may.

``docs/tests.md``, "Fuzzing", says how to repeat a fault.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import SEED
from tests.unit.fuzz.decoders import DECODERS
from tests.unit.fuzz.fuzzing import LARGE_BYTES, Decoder, Outcome, growth_faults, run, run_long

COUNT = 4_000
SOAK_COUNT = 1_000_000
GROWN_BYTES = 256 << 10


def report(*faults: object) -> str:
    return "\n".join(map(str, faults))


@pytest.fixture
def seed() -> int:
    return int(os.environ.get(SEED, "1"))


@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_a_decoder_refuses_damaged_inputs_with_its_errors(decoder: Decoder, seed: int) -> None:
    outcome = run(decoder, seed, COUNT // decoder.share)
    assert not outcome.faults, report(*outcome.faults)
    assert outcome.accepted >= 50  # its samples are valid


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_time_and_memory_of_long_inputs_are_bounded(decoder: Decoder, seed: int) -> None:
    faults = [*run_long(decoder, seed, places=2).faults, *growth_faults(decoder, seed, size=GROWN_BYTES, places=0)]
    assert not faults, report(*faults)


@pytest.mark.soak
@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_a_decoder_refuses_a_million_damaged_inputs_soak(decoder: Decoder, seed: int) -> None:
    outcome = run(decoder, seed, SOAK_COUNT)
    print_slowest(decoder, outcome)
    assert not outcome.faults, report(*outcome.faults)


@pytest.mark.soak
@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_time_grows_as_the_length_does_soak(decoder: Decoder, seed: int) -> None:
    outcome = run_long(decoder, seed, places=20)
    print_slowest(decoder, outcome)
    faults = [*outcome.faults, *growth_faults(decoder, seed, size=LARGE_BYTES, places=4)]
    assert not faults, report(*faults)


def print_slowest(decoder: Decoder, outcome: Outcome) -> None:
    print(f"{decoder}: the slowest input, {outcome.slowest_name}, took {1_000 * outcome.slowest_s:.2f} ms")
