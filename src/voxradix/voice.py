"""A voice: a loaded checkpoint, and the way from text to prompt rows and from codes to sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from torch import Tensor

from voxradix.audio import Codec, MossCodec, Recording, read_recording
from voxradix.checkpoint import Checkpoint, find_checkpoint
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import NO_DETAILS, TEMPLATE, Details, MossLocal, is_unicode, load, prompt_rows
from voxradix.piece import Piece
from voxradix.sampling import Sampling
from voxradix.text import FrontEnd, Spoken, front_end

FRAME_RATE = 12.5
"""Of the released model: 48000 samples a second, 3840 a frame (its config and its codec's)."""


@dataclass(frozen=True)
class Voice:
    """A loaded checkpoint.

    Attributes:
        checkpoint: Its files.
        model: The model.
    """

    checkpoint: Checkpoint
    model: MossLocal

    @property
    def name(self) -> str:
        """The bundled voice's name, the directory's, or the hub's."""
        return self.checkpoint.name

    @property
    def sampling(self) -> Sampling:
        """How frames are drawn unless a request says otherwise."""
        return self.checkpoint.sampling

    @property
    def max_frames(self) -> int:
        """The frames a request may have unless it says otherwise."""
        return self.checkpoint.max_frames

    @property
    def trained_for(self) -> str | None:
        """What the voice says of its training, in a sentence; None when it says nothing."""
        value = self.checkpoint.settings.get("trained_for")
        return None if value is None else str(value)

    @cached_property
    def codec(self) -> Codec:
        """The codec that turns the voice's codes into sound."""
        codec = self.checkpoint.load_codec(self.model.device)
        if codec.codebooks != self.model.config.codebooks:
            raise VoxradixError(
                f"the codec of {self.checkpoint.directory} has {codec.codebooks} codebooks and the model "
                f"{self.model.config.codebooks}; they must be equal"
            )
        return codec

    @cached_property
    def frame_rate(self) -> float:
        """Frames a second: of a voice with a codec of its own that codec's, else the released model's."""
        if not self.checkpoint.has_own_codec:
            return FRAME_RATE
        return self.codec.sample_rate / self.codec.samples_per_frame

    def reference(self, recording: str | Path | bytes | Recording) -> Tensor:
        """The codes int64 [F, codebooks] of a recording, whose voice a prompt is to take.

        The recording is given as a file, as a file's contents, or as it was read.
        """
        if not isinstance(self.codec, MossCodec):
            raise VoxradixError(
                f"voice {self.name} takes no recordings: its codec makes sound of codes, not the reverse"
            )
        if not isinstance(recording, Recording):
            recording = read_recording(Path(recording) if isinstance(recording, str) else recording)
        return self.codec.encode(recording.samples, recording.sample_rate)

    def spoken(self, text: str, behind: Sequence[Piece] = ()) -> Spoken:
        """The text as the voice reads it after what is ``behind`` it, and the words it was not trained for.

        Raises `VoxradixError` when nothing in it can be said.
        """
        if not isinstance(text, str) or not is_unicode(text):
            raise VoxradixError(f"the text is {str(text)[:40]!a}; it must be Unicode text")
        return self._front_end.spoken(text, behind)

    def split(self, text: str, behind: Sequence[Piece] = ()) -> list[str]:
        """The texts as which a long text is spoken, one after the other."""
        return self._front_end.split(text, behind)

    def cut(self, behind: Sequence[Piece], piece: Piece, frames: int) -> Piece:
        """The first ``frames`` of a piece that follows ``behind``, with what they say (`FrontEnd.cut`)."""
        return self._front_end.cut(behind, piece, frames)

    def prompt(
        self,
        text: str,
        behind: Sequence[Piece] = (),
        details: Details = NO_DETAILS,
        references: Sequence[Tensor] = (),
    ) -> Tensor:
        """The prompt rows of a text, int64 [T, C]; after other pieces, in the model's continuation format.

        A continuation has no references: the audio it goes on from has the voice (the public processor's rule).
        """
        spoken = self.spoken(text, behind)
        self._require_place(details, references)
        if details.tokens is not None and spoken.frames is not None:  # the text covers them, and so must the wish
            details = replace(details, tokens=details.tokens + len(spoken.frames))
        return prompt_rows(
            spoken.text,
            config=self.model.config,
            encode=self._encode,
            template=self._template,
            details=details,
            references=references if spoken.frames is None else (),
            continuation=None if spoken.frames is None else spoken.frames[:, 1:],
        )

    @cached_property
    def _front_end(self) -> FrontEnd:
        config = self.checkpoint.settings.get("front_end", {"kind": "plain"})
        if not isinstance(config, dict):
            raise VoxradixError(f"{self._settings}: front_end is {config!r}; it must be an object")
        vocabulary = self.checkpoint.tokenizer.get_vocab()
        try:
            return front_end(config, vocabulary)
        except VoxradixError as error:
            raise VoxradixError(f"{self._settings}: {error}") from None

    @cached_property
    def _template(self) -> Sequence[str]:
        template = self.checkpoint.settings.get("prompt", TEMPLATE)
        if not isinstance(template, list | tuple) or not all(isinstance(part, str) for part in template):
            raise VoxradixError(f"{self._settings}: prompt is no list of text segments")
        if "{text}" not in template:
            raise VoxradixError(f"{self._settings}: prompt has no segment {{text}} of its own")
        return template

    @property
    def _settings(self) -> Path:
        return self.checkpoint.directory / "voice.json"

    def takes(self, name: str) -> bool:
        """Whether the prompt has a place for a field of `Details`, or for "references"."""
        return any(f"{{{name}}}" in part for part in self._template)

    def _require_place(self, details: Details, references: Sequence[Tensor]) -> None:
        given = details.given() | ({"references": f"{len(references)} recordings"} if references else {})
        for name, value in given.items():
            if not self.takes(name):
                raise VoxradixError(f"{name} is {value!r}, but the prompt of voice {self.name} has no place for it")

    def _encode(self, text: str) -> list[int]:
        """The ids of some text. Raises `VoxradixError` for a tokenizer that loses it or makes control ids of it."""
        path = self.checkpoint.directory / "tokenizer.json"
        try:
            ids: list[int] = self.checkpoint.tokenizer.encode(text, add_special_tokens=False).ids
        except Exception as error:  # the library raises a bare Exception
            raise VoxradixError(f"{path} cannot write {text[:40]!r}: {error}") from None
        if text and not ids:
            raise VoxradixError(f"{path} has no ids for {text[:40]!r}")
        if not self._control.isdisjoint(ids):
            raise VoxradixError(f"{path} gives ordinary text, {text[:40]!r}, one of the model's control ids")
        return ids

    @cached_property
    def _control(self) -> frozenset[int]:
        """Ids that have a meaning of their own and no text."""
        config = self.model.config
        turns = (config.im_start_id, config.im_end_id)
        audio = (config.audio_start_id, config.audio_end_id, config.user_slot_id, config.assistant_slot_id)
        return frozenset(turns + audio)


def load_voice(source: str | Path | Checkpoint, *, device: str | None = None, dtype: str | None = None) -> Voice:
    """Load a bundled voice by name, a checkpoint directory by path, one on the hub as "owner/name", or a found one.

    Args:
        source: What to load (`find_checkpoint`).
        device: "cpu", "cuda" and so on; by default a GPU where there is one, for a bundled voice the CPU.
        dtype: "float32", "bfloat16" or "float16"; by default bfloat16 on a GPU and float32 on the CPU.

    Raises `VoxradixError` when there is no such voice or its files cannot be used.
    """
    checkpoint = source if isinstance(source, Checkpoint) else find_checkpoint(source)
    place, kind = checkpoint.place(device, dtype)
    model = load(checkpoint.directory, device=place, dtype=kind)
    checkpoint.sampling, checkpoint.max_frames  # noqa: B018 - refused now, not at the first request
    return Voice(checkpoint, model)
