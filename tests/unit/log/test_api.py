"""Recordings have keys and fingerprints, which distinguish them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.aeron.recording import Recording
from aeron_spark.log.api import Range, RecordingState, recording_key, split_key


@given(st.text(min_size=1), st.integers(0, 2**63 - 1))
def test_splitting_a_key_returns_its_parts(archive: str, number: int) -> None:
    assert split_key(recording_key(archive, number)) == (archive, number)


@pytest.mark.parametrize(
    "text", ["", "7", "/7", "embedded/", "embedded/x", "embedded/-1", "embedded/07", "embedded/\u0667"]
)
def test_an_invalid_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not '<archive>/<recording id>'"):
        split_key(text)


def test_a_fingerprint_changes_with_each_of_its_parts() -> None:
    recording = Recording(7, 5, None, 0, None, 1, 65536, 65536, 1408, 9, 2, "aeron:ipc", "aeron:ipc", "")
    parts = ("initial_term_id", "stream_id", "term_length", "mtu", "start_timestamp")
    others = [replace(recording, **{name: getattr(recording, name) + 1}) for name in parts]
    assert len({one.fingerprint for one in (recording, *others)}) == 6
    assert replace(recording, session_id=10).fingerprint == recording.fingerprint  # an extension changes the session
    # Checkpoints contain it, so it must not change between versions.
    assert recording.fingerprint == "43219bc3"


def test_a_recording_state_has_the_parts_of_its_key() -> None:
    state = RecordingState("host:8010/7", "00000000", 0, 0, True, 65536)
    assert (state.archive, state.recording_id) == ("host:8010", 7)


def test_the_length_of_a_range_is_its_end_minus_its_start() -> None:
    assert Range("a/1", "00000000", 64, 160, 320, 65536).length == 96
