"""Takes in files: a NumPy .npz archive with the rows, and a JSON text that says what they are."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from voxradix.audio import write_file
from voxradix.engine.request import Finish
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import Details
from voxradix.piece import End, Piece
from voxradix.rows import EndRule, RowLayout
from voxradix.sampling import Draw, Sampling

_T = TypeVar("_T")

FORMAT = "voxradix take"
_MOST_ABOUT = 1 << 24
_HEADER = 1 << 12
"""Bytes: the most that a take says about itself, and more than the header of an array takes."""

VERSION = 2
"""Raised whenever a file of the new kind could be misread by the old reader. Files of version 1 have no details and no
references."""


def save_take(path: Path, values: Mapping[str, Any]) -> None:
    """Write a take, given as the values of its fields, whole or not at all.

    Raises `VoxradixError` when it cannot be written.
    """
    layout, pieces = values["layout"], values["pieces"]
    about = dict(values) | {
        "format": FORMAT,
        "version": VERSION,
        "layout": asdict(layout) | {"end_rule": layout.end_rule.name},
        "pieces": [{"text": p.text, "frames": len(p.rows), "end": p.end.value} for p in pieces],
        "sampling": asdict(values["sampling"]),
        "details": values["details"].given(),
        "references": [len(codes) for codes in values["references"]],
    }
    rows = _joined([piece.rows for piece in pieces], layout)
    references = _joined([F.pad(codes, (1, 0)) for codes in values["references"]], layout)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, about=np.array(json.dumps(about)), rows=rows, references=references)
    write_file(path, buffer.getvalue())


def load_take(path: Path) -> dict[str, Any]:
    """Read a take: the values of its fields. Raises `VoxradixError` that names the file and what is wrong with it."""
    about, rows, references = _read(path)
    try:
        layout = _layout(about["layout"])
        layout.check(rows)
        layout.check(references)
        return {
            "voice": _is(str, about["voice"]),
            "model": _is(str, about["model"]),
            "layout": layout,
            "frame_rate": _positive(about["frame_rate"]),
            "pieces": _pieces(about["pieces"], rows),
            "unsaid": tuple(_is(str, text) for text in _is(list, about["unsaid"])),
            "seed": _seed(about["seed"]),
            "sampling": _sampling(about["sampling"]),
            "details": Details(**about["details"]),
            "references": tuple(codes[:, 1:] for codes in _parts(references, about["references"], "references")),
            "finish": Finish(about["finish"]).value,
            "error": None if about["error"] is None else _is(str, about["error"]),
        }
    except KeyError as error:
        raise VoxradixError(f"{path} is a damaged take: {error} is missing") from None
    except (TypeError, ValueError) as error:
        raise VoxradixError(f"{path} is a damaged take: {error}") from None


def _joined(parts: Sequence[Tensor], layout: RowLayout) -> npt.NDArray[np.int64]:
    """All rows int64 [F, C] in one array."""
    return np.concatenate([np.empty((0, layout.columns), dtype=np.int64), *(part.numpy() for part in parts)])


def _read(path: Path) -> tuple[dict[str, Any], Tensor, Tensor]:
    """What a file says about its take, the rows, and the references as rows whose text id is 0."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            sizes = {entry.filename: entry.file_size for entry in archive.zip.infolist()}
            if sizes["about.npy"] > _MOST_ABOUT:
                raise VoxradixError(f"{path} is no take: it says {sizes['about.npy']} bytes about itself")
            about = json.loads(str(archive["about"]))
            if not isinstance(about, dict):
                raise VoxradixError(f"{path} is no take: it says nothing about itself")
            if about.get("format") != FORMAT:
                raise VoxradixError(f"{path} is no take: its format is {about.get('format')!r}")
            if about.get("version") not in (1, VERSION):
                raise VoxradixError(
                    f"{path} is a take of version {about.get('version')!r}; this release reads 1 and {VERSION}"
                )
            if about["version"] == 1:
                about |= {"details": {}, "references": []}
            pieces = [piece["frames"] for piece in about["pieces"]]
            held = {"rows": ("pieces", pieces)}
            if about["version"] != 1:
                held["references"] = ("references", about["references"])
            for name, (what, counts) in held.items():  # known before they are unpacked
                said = sum(counts) * len(about["layout"]["bounds"])
                if sizes[f"{name}.npy"] > 8 * said + _HEADER:
                    raise VoxradixError(
                        f"{path} is a damaged take: its {what} have {said} numbers, but more are packed"
                    )
            arrays = {name: torch.from_numpy(archive[name]) for name in held}
            rows = arrays["rows"]
            references = arrays.get("references", rows[:0])
    except FileNotFoundError:
        raise VoxradixError(f"{path} does not exist; name a file that --save or Take.save wrote") from None
    except OSError as error:
        raise VoxradixError(f"{path} cannot be read: {error}") from None
    except VoxradixError:
        raise
    except KeyError as error:
        raise VoxradixError(f"{path} is a damaged take: {error} is missing") from None
    except Exception as error:  # the archive's own errors are of many kinds: zipfile, zlib, NumPy, JSON
        raise VoxradixError(
            f"{path} is no take, or a damaged one ({type(error).__name__}); name a file that --save or Take.save wrote"
        ) from None
    return about, rows, references


def _layout(about: Mapping[str, Any]) -> RowLayout:
    values = dict(about)
    values["bounds"] = tuple(_is(int, bound) for bound in values["bounds"])
    values["end_rule"] = EndRule[values["end_rule"]]
    return RowLayout(**values)


def _sampling(about: Mapping[str, Any]) -> Sampling:
    return Sampling(Draw(**about["stop"]), Draw(**about["codes"]), about["repetition_penalty"])


def _pieces(about: object, rows: Tensor) -> tuple[Piece, ...]:
    entries = _is(list, about)
    parts = _parts(rows, [entry["frames"] for entry in entries], "pieces")
    return tuple(
        Piece(_is(str, entry["text"]), part, End(entry["end"])) for entry, part in zip(entries, parts, strict=True)
    )


def _parts(rows: Tensor, about: object, what: str) -> tuple[Tensor, ...]:
    """The rows split into parts of the lengths that the file says."""
    counts = [_is(int, count) for count in _is(list, about)]
    if any(count < 0 for count in counts) or sum(counts) != len(rows):
        raise ValueError(f"its {what} have {counts} frames, but there are {len(rows)} rows")
    return rows.to(torch.int64).split(counts) if counts else ()


def _seed(value: object) -> int:
    seed = _is(int, value)
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed {seed} is no 64-bit integer")
    return seed


def _positive(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise ValueError(f"frame_rate is {value!r}")
    return float(value)


def _is(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
