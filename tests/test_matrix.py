"""The matrix: all pairs of all axes, every cell equal, and a cell that is not says where."""

from __future__ import annotations

from dataclasses import astuple, replace
from itertools import combinations, product

import pytest
from torch import Tensor

from voxradix.cache import SlotPool
from voxradix.cli import matrix as command
from voxradix.keys import fold_keys
from voxradix.models.moss_local import Frames
from voxradix.verify import AXES, Cell, Matrix, Part, every_cell, pairwise_cells
from voxradix.verify.axes import Batch, Cache, Key, Lookahead, Prefill, Retraction, Step, Way
from voxradix.verify.reference import Reference

PLAIN = Cell(
    Key.SEED,
    Step.EAGER,
    Lookahead.OFF,
    Cache.COLD,
    Batch.ALONE,
    Prefill.SEVEN,
    Retraction.NEVER,
    Way.SEEDED,
)


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return Matrix()


def test_any_two_values_of_any_two_axes_meet_in_a_cell() -> None:
    cells = [astuple(cell) for cell in pairwise_cells()]
    for (a, first), (b, second) in combinations(enumerate(AXES.values()), 2):
        assert {(cell[a], cell[b]) for cell in cells} == set(product(first, second))


def test_the_full_product_has_every_cell_once_and_the_pairwise_ones_among_them() -> None:
    cells = every_cell()
    assert len(cells) == len(set(cells)) == 4 * 2 * 2 * 4 * 5 * 4 * 2 * 3
    assert set(pairwise_cells()) < set(cells)
    assert len({str(cell) for cell in cells}) == len(cells)


@pytest.mark.parametrize("cell", pairwise_cells(), ids=lambda cell: "-".join(astuple(cell)).replace(" ", "_"))
def test_every_pairwise_cell_is_equal(matrix: Matrix, cell: Cell) -> None:
    outcome = matrix.run(cell)
    assert outcome.equal, str(outcome)
    assert (outcome.reused > 0) == (cell.cache in (Cache.TWIN, Cache.CONTINUATION))
    assert (outcome.retractions > 0) == (cell.retraction is Retraction.EVERY_FRAME)


def test_steps_are_replayed_where_the_cell_says_so_and_only_there(matrix: Matrix) -> None:
    assert matrix.run(replace(PLAIN, step=Step.GRAPH)).graphs > 0
    assert matrix.run(PLAIN).graphs == 0


def test_a_wrong_code_is_named_by_request_frame_and_channel(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = replace(PLAIN, batch=Batch.TWO, prefill=Prefill.WHOLE)
    assert matrix.run(cell).equal
    decoder, calls = matrix.voice.model.frames, 0

    def wrong(hidden: Tensor, chooser: object) -> Frames:
        nonlocal calls
        frames: Frames = decoder(hidden, chooser)  # type: ignore[arg-type]
        calls += 1
        if calls == 3:
            codes = frames.codes.clone()
            codes[1, 2] ^= 1
            return replace(frames, codes=codes)
        return frames

    monkeypatch.setattr(matrix.voice.model, "frames", wrong)
    outcome = matrix.run(cell)
    first = outcome.differences[0]
    assert (first.part, first.request, first.frame, first.channel) == (Part.CODES, 1, 2, 3)
    assert "FAIL: codes differ at (request 1, frame 2, channel 3): " in str(outcome)


def test_a_wrong_key_is_named(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voxradix.keys.publish.fold_keys", lambda *arguments: fold_keys(*arguments) ^ 1)
    outcome = matrix.run(PLAIN)
    assert [difference.part for difference in outcome.differences] == [Part.NEXT_IDS]
    assert "FAIL: next ids differ at (request 0, frame 0, channel 0): " in str(outcome)


def test_a_change_of_keys_and_values_is_named(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    assert matrix.run(PLAIN).equal
    hidden = matrix.voice.model.hidden

    def changing(rows: Tensor, place: object, kv: object) -> Tensor:
        made = hidden(rows, place, kv)  # type: ignore[arg-type]
        kv.values[-1][0, place.slots[2], 5] += 1  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(matrix.voice.model, "hidden", changing)
    first = matrix.run(PLAIN).differences[0]
    assert (first.part, first.request, first.frame, first.channel) == (Part.KV, 0, -10, 16 + 5)
    assert first.made != first.expected


def test_a_cell_that_breaks_off_or_loses_a_row_says_so(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Tensor:
        raise RuntimeError("out of memory")

    assert matrix.run(PLAIN).equal
    monkeypatch.setattr(matrix.voice.model, "hidden", fails)
    assert "request 0 failed: RuntimeError: out of memory" in str(matrix.run(PLAIN))
    monkeypatch.undo()
    monkeypatch.setattr(SlotPool, "give", lambda *_: None)
    assert "FAIL: AssertionError: " in str(matrix.run(replace(PLAIN, cache=Cache.OFF)))


def test_the_command_prints_a_line_a_cell_and_fails_when_one_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = (PLAIN, replace(PLAIN, key=Key.SEVEN))
    monkeypatch.setattr(command, "pairwise_cells", lambda: cells)
    assert command.run_matrix(full=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all(str(cell) in line for cell, line in zip(cells, lines[1:], strict=False))
    assert "2 of 7680 cells: 2 equal, 0 failed" in lines[-1]
    of = Reference.of
    monkeypatch.setattr(Reference, "of", lambda self, case: replace(of(self, case), rows=of(self, case).rows.flip(0)))
    monkeypatch.setattr(command, "every_cell", lambda: cells)
    assert not command.run_matrix(full=True)
    assert "2 of 2 cells: 0 equal, 2 failed" in capsys.readouterr().out
