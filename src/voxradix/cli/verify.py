"""The `verify` command: the promises of the row keys, checked on this machine, on the CPU or on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from voxradix.capture import Kind, check, record
from voxradix.cli.bench import machine
from voxradix.errors import VoxradixError
from voxradix.keys import (
    Published,
    RowPublisher,
    ShortHash,
    pack_rows,
    prompt_keys,
    row_hash,
    row_hash_definition,
    seed_key_definition,
    seed_keys,
    unpack_rows,
)
from voxradix.keys.publish import published_by_torch
from voxradix.rows import LAYOUTS, MOSS_LOCAL

_EDGES = (-(2**63), -(2**31 - 1), -1, 0, 2**31 - 2, 2**31 - 1, 2**63 - 1)
_CONTINUE = 151656


class NotHere(Exception):  # noqa: N818 - a reason, not a failure
    """Why a check cannot run on this machine."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check came to: "pass", "FAIL" or "not run", and a few words on it."""

    name: str
    result: str
    detail: str


def run_verify(device: str) -> bool:
    """Run every check on a device, print a table, and say whether none failed."""
    if device not in ("cpu", "cuda"):
        raise VoxradixError(f"--device is {device!r}; it must be cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise VoxradixError("--device is cuda, but torch finds no CUDA device here; use --device cpu")
    outcomes = [_outcome(name, checked, torch.device(device)) for name, checked in CHECKS.items()]
    card = f", {torch.cuda.get_device_name()}" if device == "cuda" else ""
    table = Table("check", "result", "detail", title=f"verify --device {device}")
    for outcome in outcomes:
        table.add_row(outcome.name, outcome.result, outcome.detail)
    console = Console()
    console.print(machine() + card)
    console.print(table)
    return all(outcome.result != "FAIL" for outcome in outcomes)


def _outcome(name: str, checked: Callable[[torch.device], str], device: torch.device) -> Outcome:
    try:
        return Outcome(name, "pass", checked(device))
    except NotHere as reason:
        return Outcome(name, "not run", str(reason))
    except Exception as error:
        return Outcome(name, "FAIL", f"{type(error).__name__}: {error}")


def _edge_rows(count: int, columns: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(columns)
    edges = torch.tensor(_EDGES)[torch.randint(len(_EDGES), (count, columns), generator=generator)]
    plain = torch.randint(-(2**40), 2**40, (count, columns), generator=generator)
    return torch.where(torch.rand(count, columns, generator=generator) < 0.5, edges, plain).to(device)


def _frames(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    stop = torch.rand(count, generator=generator) < 0.3
    return stop.to(device), torch.randint(0, 1024, (count, 12), generator=generator).to(device)


def _require(equal: bool, what: str) -> None:
    if not equal:
        raise AssertionError(what)


def horner(device: torch.device) -> str:
    """Horner's rule equals the definition, at the extremes of int64 too."""
    for columns in (1, 13, 33, 64):
        rows = _edge_rows(200, columns, device)
        expected = [row_hash_definition(row) for row in rows.tolist()]
        _require(row_hash(rows).tolist() == expected, f"row_hash differs with {columns} columns")
    return "800 rows of 1 to 64 columns"


def short_form(device: torch.device) -> str:
    """The short form equals the definition, up to every layout's bounds."""
    for layout in LAYOUTS:
        rows = torch.stack([torch.randint(0, bound, (100,)) for bound in layout.bounds], dim=1)
        rows = torch.cat((rows, torch.tensor([layout.bounds]) - 1)).to(device)
        expected = [row_hash_definition(row) for row in rows.tolist()]
        _require(ShortHash(layout, device)(rows).tolist() == expected, f"ShortHash differs for {layout.name}")
    return f"{len(LAYOUTS)} layouts"


def packing(device: torch.device) -> str:
    """Packed rows are the rows."""
    for layout in LAYOUTS:
        rows = torch.stack([torch.randint(0, bound, (100,)) for bound in layout.bounds], dim=1).to(device)
        _require(torch.equal(unpack_rows(pack_rows(rows, layout), layout), rows), f"packing differs for {layout.name}")
    return f"{len(LAYOUTS)} layouts"


def publishing(device: torch.device) -> str:
    """Rows, keys and words of frames equal the definitions."""
    publish = RowPublisher(MOSS_LOCAL, _CONTINUE, device=device)
    for count in (0, 1, 7, 33, 257):
        made = publish(*_frames(count, device))
        expected = [seed_key_definition(row, end_id=MOSS_LOCAL.end_id) for row in made.rows.tolist()]
        _require(made.keys.tolist() == expected, f"keys differ for {count} frames")
        _require(torch.equal(made.packed, pack_rows(made.rows, MOSS_LOCAL)), f"words differ for {count} frames")
    return "one Triton launch" if publish.fused else "torch operations"


def triton_hash(device: torch.device) -> str:
    """The Triton hash equals the definition, and one compilation serves every shape and stride."""
    if device.type != "cuda":
        raise NotHere("needs a GPU; interpreted and compiled ahead of time in the tests")
    try:
        import voxradix.keys.kernels as kernels
    except ImportError:
        raise NotHere("Triton is not installed") from None
    wide = _edge_rows(50, 26, device)
    for rows in (_edge_rows(129, 33, device), _edge_rows(16, 13, device), wide[::2, ::2], wide[:, 1:]):
        expected = [row_hash_definition(row) for row in rows.tolist()]
        _require(kernels.hash_rows(rows).tolist() == expected, f"hash_rows differs for {list(rows.shape)}")
    compiled = sum(len(cache[0]) for cache in kernels.hash_rows_kernel.device_caches.values())
    _require(compiled == 1, f"{compiled} compilations for four shapes")
    return "1 compilation"


def capture_check(device: torch.device) -> str:
    """The checker refuses the host's blake2b and passes the keys."""
    rows = torch.cat((torch.full((4, 1), _CONTINUE), _frames(4, torch.device("cpu"))[1]), dim=1)
    refused = check(prompt_keys, rows)
    _require(any(f.kind is Kind.HOST_READ for f in refused.findings), "blake2b on the host was not refused")
    words, shifts = [field.word for field in MOSS_LOCAL.fields], [field.shift for field in MOSS_LOCAL.fields]
    ids = (_CONTINUE, MOSS_LOCAL.end_id, 1024, MOSS_LOCAL.end_key, MOSS_LOCAL.key_space, 0)

    for report in (
        check(lambda rows: seed_keys(rows, end_id=MOSS_LOCAL.end_id), rows),
        check(
            lambda stop, codes: published_by_torch(stop, codes, words, shifts, *ids),
            *_frames(4, torch.device("cpu")),
        ),
    ):
        _require(report.ok and "cuda" in report.passes, str(report))
    return "blake2b refused; keys and published frames pass on fake CUDA tensors and on the CPU"


def replay(device: torch.device) -> str:
    """A captured step gives new inputs' values: a CUDA graph on a GPU, recorded operators on the CPU."""
    publish = RowPublisher(MOSS_LOCAL, _CONTINUE, device=device)
    first, others = _frames(16, device), [tuple(t.flip(0) for t in _frames(16, device)), _frames(16, device)]
    if device.type == "cuda":
        return _replay_on_cuda(publish, first, others)
    recording = record(lambda stop, codes: _parts(publish(stop, codes)), *first)
    for inputs in others:
        made = [part.clone() for part in recording.replay(*inputs)]
        _require(all(map(torch.equal, made, _parts(publish(*inputs)))), "a replay differs from eager")
    return "recorded operators"


def _replay_on_cuda(publish: RowPublisher, first: tuple[Tensor, ...], others: list[tuple[Tensor, ...]]) -> str:
    static = [tensor.clone() for tensor in first]
    _parts(publish(*static))  # compile before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = _parts(publish(*static))
    for inputs in others:
        for held, new in zip(static, inputs, strict=True):
            held.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        _require(all(map(torch.equal, outputs, _parts(publish(*inputs)))), "a replay differs from eager")
    return "CUDA graph"


def _parts(made: Published) -> tuple[Tensor, Tensor, Tensor]:
    return made.rows, made.keys, made.packed


CHECKS: dict[str, Callable[[torch.device], str]] = {
    "Horner's rule equals the definition": horner,
    "the short form equals the definition": short_form,
    "packed rows are the rows": packing,
    "published frames equal the definitions": publishing,
    "the Triton hash equals the definition": triton_hash,
    "what would break a capture is refused": capture_check,
    "a captured step is replayed on new inputs": replay,
}
"""Every check by the promise it tests; each returns a few words or raises."""
