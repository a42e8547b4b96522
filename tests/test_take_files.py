"""Take files: what is saved is what is loaded, and a file that is something else is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from voxradix import Draw, Engine, Sampling, Take, VoxradixError

Change = Callable[[dict[str, Any]], object]
SAMPLING = Sampling(Draw(temperature=0.0), Draw(0.9, 0.7, 11), 1.1)


@pytest.fixture(scope="module")
def take() -> Take:
    return Engine("numbers").speak("four eight one five. nine two three. six six seven.", seed=-5, sampling=SAMPLING)


@pytest.fixture
def saved(take: Take, tmp_path: Path) -> Path:
    path = tmp_path / "take.npz"
    take.save(path)
    return path


def test_a_take_from_a_file_is_the_take_that_was_saved(take: Take, saved: Path) -> None:
    loaded = Take.load(saved)
    assert torch.equal(loaded.rows, take.rows) and loaded.rows.dtype == torch.int64
    assert [(p.text, len(p.rows), p.end) for p in loaded.pieces] == [(p.text, len(p.rows), p.end) for p in take.pieces]
    for name in ("voice", "model", "layout", "frame_rate", "unsaid", "seed", "sampling", "finish", "error"):
        assert getattr(loaded, name) == getattr(take, name), name
    assert loaded.results == () and loaded.first_frame_seconds is None


def test_after_a_restart_the_same_call_gives_the_same_audio_only_without_the_hit(take: Take, saved: Path) -> None:
    warm = Engine("numbers")
    warm.speak("nine", after=take)
    a, b = warm.speak("nine", after=take), Engine("numbers").speak("nine", after=Take.load(str(saved)))
    assert torch.equal(a.rows, b.rows)
    assert a.reused_prompt_rows + a.reused_generated_rows == a.prompt_rows - 1
    assert b.reused_prompt_rows == b.reused_generated_rows == 0
    branch = warm.speak(after=take.at(frames=30)), Engine("numbers").speak(after=Take.load(saved).at(frames=30))
    assert torch.equal(branch[0].rows, branch[1].rows)


def test_a_saved_branch_knows_where_it_was_cut(take: Take, tmp_path: Path) -> None:
    branch = Engine("numbers").speak("nine", after=take.at(frames=20), max_frames=3)
    branch.save(tmp_path / "branch.npz")
    loaded = Take.load(tmp_path / "branch.npz")
    assert [p.end for p in loaded.pieces] == [p.end for p in branch.pieces]
    assert torch.equal(Engine("numbers").speak(after=loaded).rows, Engine("numbers").speak(after=branch).rows)


def rewrite(path: Path, change: Change) -> None:
    with np.load(path) as archive:
        held: dict[str, Any] = {name: archive[name] for name in archive}
    held["about"] = json.loads(str(held["about"]))
    change(held)
    held["about"] = np.array(json.dumps(held["about"]))
    np.savez_compressed(path, **held)


@pytest.mark.parametrize(
    "key",
    [
        "voice",
        "model",
        "layout",
        "frame_rate",
        "pieces",
        "unsaid",
        "seed",
        "sampling",
        "finish",
        "error",
        "details",
        "references",
    ],
)
def test_a_file_that_lacks_something_names_it(saved: Path, key: str) -> None:
    rewrite(saved, lambda held: held["about"].pop(key))
    with pytest.raises(VoxradixError, match=f"take.npz is a damaged take: '{key}' is missing"):
        Take.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda held: held["about"].update(format="song"), "its format is 'song'"),
        (lambda held: held["about"].update(version=3), "of version 3; this release reads 1 and 2"),
        (lambda held: held["about"].update(seed="7"), "'7' is no int"),
        (lambda held: held["about"].update(seed=True), "True is no int"),
        (lambda held: held["about"].update(seed=2**63), "no 64-bit integer"),
        (lambda held: held.update(rows=np.zeros((10**5, 13), dtype=np.int64)), "more are packed"),
        (lambda held: held["about"].update(frame_rate=0), "frame_rate is 0"),
        (lambda held: held["about"].update(finish="soon"), "'soon' is not a valid"),
        (lambda held: held["about"].update(pieces=held["about"]["pieces"][:-1]), "its pieces have"),
        (lambda held: held["about"]["pieces"][0].update(frames=-1), "its pieces have"),
        (lambda held: held["about"]["pieces"][0].update(end="torn"), "'torn' is not a valid"),
        (lambda held: held["about"]["pieces"][0].update(text=None), "None is no str"),
        (lambda held: held["about"]["sampling"]["codes"].update(temperature=-1), "temperature, unless 0, is -1"),
        (lambda held: held["about"]["sampling"]["codes"].update(speed=2), "speed"),
        (lambda held: held["about"]["layout"].update(end_rule="NEVER"), "'NEVER'"),
        (lambda held: held["about"]["layout"]["bounds"].pop(), "layout"),
        (lambda held: held["rows"].__setitem__((0, 1), 99999), "row 0, column 1 holds 99999"),
        (lambda held: held.update(rows=held["rows"].astype(np.float32)), "integers"),
        (lambda held: held.update(rows=held["rows"][0]), "rows have shape"),
        (lambda held: held.update(about=[1]), "says nothing about itself"),
        (lambda held: held.pop("rows"), "rows"),
    ],
)
def test_a_file_with_a_wrong_value_is_refused_with_the_value(saved: Path, change: Change, message: str) -> None:
    rewrite(saved, change)
    with pytest.raises(VoxradixError, match=message) as error:
        Take.load(saved)
    assert "take.npz" in str(error.value)


def test_a_file_of_the_first_version_loads_without_details(take: Take, saved: Path) -> None:
    def older(held: dict[str, Any]) -> None:
        held["about"] |= {"version": 1}
        del held["about"]["details"], held["about"]["references"], held["references"]

    rewrite(saved, older)
    loaded = Take.load(saved)
    assert torch.equal(loaded.rows, take.rows) and not loaded.details.given() and loaded.references == ()


def test_what_is_no_take_at_all_is_refused(tmp_path: Path, saved: Path) -> None:
    whole = saved.read_bytes()
    for data in (b"", b"hello", whole[: len(whole) // 2], whole[:-30]):
        (tmp_path / "x.npz").write_bytes(data)
        with pytest.raises(VoxradixError, match=r"x\.npz"):
            Take.load(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", about=np.array([{"a": 1}], dtype=object), rows=np.zeros((1, 13), dtype=np.int64))
    for path, message in (
        (tmp_path / "y.npz", "no take"),
        (tmp_path / "none.npz", "does not exist"),
        (tmp_path, "cannot be read"),
    ):
        with pytest.raises(VoxradixError, match=message):
            Take.load(path)


def test_a_take_that_cannot_be_written_says_so(take: Take, tmp_path: Path) -> None:
    with pytest.raises(VoxradixError, match="cannot be written"):
        take.save(tmp_path / "nowhere" / "take.npz")
