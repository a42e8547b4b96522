"""A script: what is to be spoken, after what."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from voxradix.engine.take import Branch, Take
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import own_codes
from voxradix.piece import End, Piece
from voxradix.voice import Voice


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """What is to be spoken.

    Attributes:
        behind: The pieces that are spoken.
        kept: Frames of the first text that are spoken already, int64 [K, C].
        texts: The texts to speak, one request each.
        unknown: Words in them that the voice was not trained to say.
        own: Whether the texts are those of the take it goes on from, and none is new.
    """

    behind: tuple[Piece, ...]
    kept: Tensor
    texts: tuple[str, ...]
    unknown: tuple[str, ...]
    own: bool = False


def script(voice: Voice, text: str | None, after: Take | Branch | None) -> Script:
    """The script of a text, after a take or from a place in one; without a text, the rest of the take's own.

    Raises `VoxradixError` when nothing is left to say or the voice cannot say it.
    """
    if text is not None and not isinstance(text, str):
        raise VoxradixError(f"text is {text!r}; it must be text")
    if after is not None and not isinstance(after, Take | Branch):
        raise VoxradixError(f"after is {after!r}; it must be a take, or a place in one (take.at)")
    kept = torch.empty(0, voice.model.layout.columns, dtype=torch.int64)
    behind: tuple[Piece, ...] = ()
    if after is None:
        if text is None:
            raise VoxradixError("there is neither a text to speak nor a take to go on from; give one")
        texts = voice.split(text)
    else:
        branch = after if isinstance(after, Branch) else Branch(after, after.frames)
        _require_kin(voice, branch.take)
        pieces, index = branch.take.pieces, _piece_at(branch)
        behind = pieces[:index]
        begun = branch.frames - sum(len(piece.rows) for piece in behind)
        if text is not None:
            if begun:
                behind = (*behind, _cut(voice, behind, pieces[index], begun, branch.said))
            texts = voice.split(text, behind)
        else:
            texts = [*(piece.text for piece in pieces[index:]), *branch.take.unsaid]
            if not texts:
                raise VoxradixError(
                    "the take has said all of its text; give a text to go on with, or a place before its end"
                )
            kept = pieces[index].rows[:begun] if begun else kept
    unknown: list[str] = []
    earlier: list[Piece] = list(behind)
    for part in texts:
        unknown += voice.spoken(part, earlier).unknown
        earlier.append(Piece(part, kept[:0], End.ENDED))
    return Script(behind, kept, tuple(texts), tuple(unknown), own=text is None)


def _piece_at(branch: Branch) -> int:
    """The piece in which the branch lies; one past the last when it lies at the end of a piece that is over."""
    ends = list(accumulate(len(piece.rows) for piece in branch.take.pieces))
    for index, (piece, end) in enumerate(zip(branch.take.pieces, ends, strict=True)):
        if branch.frames < end:
            return index
        if branch.frames == end and (piece.end is End.OPEN or branch.said is not None):
            return index
    return len(ends)


def _cut(voice: Voice, behind: tuple[Piece, ...], piece: Piece, frames: int, said: str | None) -> Piece:
    """The first ``frames`` of a piece, with the text they say."""
    return voice.cut(behind, piece, frames) if said is None else Piece(said, piece.rows[:frames], End.CUT)


def _require_kin(voice: Voice, take: Take) -> None:
    """Refuse a take of other rows than the voice's; warn of one that another model made."""
    layout = voice.model.layout
    if take.layout != layout:
        raise VoxradixError(
            f"the take's rows are of {take.layout.name} with {take.layout.columns} columns, bounds "
            f"{take.layout.bounds}; this voice's are of {layout.name} with {layout.columns}, {layout.bounds}"
        )
    config, rows = voice.model.config, take.rows
    for number, codes in enumerate(take.references, start=1):
        own_codes(codes, config, f"the take's reference {number}")
    if bool((rows[:, 0] != config.assistant_slot_id).any() or (rows[:, 1:] >= config.codebook_size).any()):
        raise VoxradixError("the take's rows are not all frames of this voice: a text id or a pad stands among them")
    if take.model != voice.model.digest.hex():
        warnings.warn(
            f"the take was made by another model (of voice {take.voice}); {voice.name} goes on from it all the same",
            stacklevel=2,
        )
