"""The second half of the `verify` command: the matrix, one line a cell."""

from __future__ import annotations

import logging
from time import perf_counter

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from voxradix.cli.speak import use_threads
from voxradix.verify import TITLE, Cell, Matrix, every_cell, pairwise_cells


def run_matrix(full: bool) -> bool:
    """Run the pairwise cells, or all with a progress bar; print each and a sum; say whether all are equal."""
    logging.getLogger("voxradix.engine").setLevel(logging.ERROR)  # what cannot be captured is told by the cell
    matrix, cells = Matrix(), every_cell() if full else pairwise_cells()
    use_threads(None, matrix.voice.model)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    began, failed = perf_counter(), 0
    console.print(TITLE)
    with Progress(*columns, console=console, transient=True, disable=not full or not console.is_terminal) as progress:
        for cell in progress.track(cells, description="cells"):
            failed += not _printed(console, matrix, cell)
    seconds = perf_counter() - began
    console.print(
        f"{len(cells)} of {len(every_cell())} cells: {len(cells) - failed} equal, {failed} failed, {seconds:.1f} s"
    )
    return not failed


def _printed(console: Console, matrix: Matrix, cell: Cell) -> bool:
    """Run a cell and print its line; whether it is equal."""
    outcome = matrix.run(cell)
    console.print(str(outcome))
    return outcome.equal
