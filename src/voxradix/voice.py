"""A voice: a checkpoint directory with all it takes to go from text to sound.

What differs between voices is said by files in the directory: config.json and weights (the model), tokenizer.json,
generation_config.json (sampling defaults), voice.json (front end, prompt template, codec, what it was trained for).
A released checkpoint has no voice.json and takes the released model's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer
from torch import Tensor

from voxradix.audio import Codec, load_codec
from voxradix.errors import VoxradixError
from voxradix.files import read_json
from voxradix.models.moss_local import TEMPLATE, MossLocal, load, prompt_rows
from voxradix.piece import Piece
from voxradix.sampling import Draw, Sampling
from voxradix.text import FrontEnd, Spoken, front_end

_BUNDLED = Path(__file__).parent / "voices"
_FRAME_RATE = 12.5
"""Of the released model: 48000 samples a second, 3840 a frame (its config and its codec's)."""
_MAX_FRAMES = 4096
"""The released model's budget: its card's ``max_new_tokens``, 5.5 minutes at 12.5 frames a second."""


def bundled_voices() -> list[str]:
    """The names of the voices in the package."""
    return sorted(path.parent.name for path in _BUNDLED.glob("*/voice.json"))


@dataclass(frozen=True)
class Voice:
    """A loaded checkpoint directory.

    Attributes:
        name: The bundled voice's or the directory's name.
        directory: Where it was read from.
        model: The model.
        sampling: How frames are drawn unless a request says otherwise.
        max_frames: The frames a request may have unless it says otherwise.
        settings: The parsed voice.json, empty without one.
    """

    name: str
    directory: Path
    model: MossLocal
    sampling: Sampling
    max_frames: int
    settings: Mapping[str, object]

    @property
    def trained_for(self) -> str | None:
        """What the voice says of its training, in a sentence; None when it says nothing."""
        value = self.settings.get("trained_for")
        return None if value is None else str(value)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer; special-token strings in a text stay plain text."""
        path = self.directory / "tokenizer.json"
        if not path.is_file():
            raise VoxradixError(f"{self.directory} has no tokenizer.json; without one, give prompt rows, not text")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises a bare Exception
            raise VoxradixError(f"{path} is not a readable tokenizer: {error}") from None
        tokenizer.encode_special_tokens = True
        return tokenizer

    @cached_property
    def codec(self) -> Codec:
        """The codec that turns the voice's codes into sound."""
        name = self.settings.get("codec")
        if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name or "\0" in name:
            raise VoxradixError(
                f"{self.directory} names no codec directory in voice.json, so its frames cannot be made sound"
            )
        codec = load_codec(self.directory / name)
        if codec.codebooks != self.model.config.codebooks:
            raise VoxradixError(
                f"the codec in {self.directory / name} has {codec.codebooks} codebooks and the model "
                f"{self.model.config.codebooks}; they must be equal"
            )
        return codec

    @cached_property
    def _front_end(self) -> FrontEnd:
        config = self.settings.get("front_end", {"kind": "plain"})
        if not isinstance(config, dict):
            raise VoxradixError(f"{self.directory / 'voice.json'}: front_end is {config!r}; it must be an object")
        return front_end(config, self.tokenizer.get_vocab(with_added_tokens=False))

    @cached_property
    def _template(self) -> Sequence[str]:
        template = self.settings.get("prompt", TEMPLATE)
        if not isinstance(template, list | tuple) or not all(isinstance(part, str) for part in template):
            raise VoxradixError(f"{self.directory / 'voice.json'}: prompt is no list of text segments")
        if "{text}" not in template:
            raise VoxradixError(f"{self.directory / 'voice.json'}: prompt has no segment {{text}} of its own")
        return template

    @cached_property
    def frame_rate(self) -> float:
        """Frames a second: the codec's, or the released model's for a voice without one."""
        if "codec" not in self.settings:
            return _FRAME_RATE
        return self.codec.sample_rate / self.codec.samples_per_frame

    def spoken(self, text: str, behind: Sequence[Piece] = ()) -> Spoken:
        """The text as the voice reads it after what is ``behind`` it, and the words it was not trained for.

        Raises `VoxradixError` when nothing in it can be said.
        """
        return self._front_end.spoken(text, behind)

    def split(self, text: str, behind: Sequence[Piece] = ()) -> list[str]:
        """The texts as which a long text is spoken, one after the other."""
        return self._front_end.split(text, behind)

    def cut(self, behind: Sequence[Piece], piece: Piece, frames: int) -> Piece:
        """The first ``frames`` of a piece that follows ``behind``, with what they say (`FrontEnd.cut`)."""
        return self._front_end.cut(behind, piece, frames)

    def prompt(self, text: str, behind: Sequence[Piece] = ()) -> Tensor:
        """The prompt rows of a text, int64 [T, C]; after other pieces, in the model's continuation format."""
        spoken = self.spoken(text, behind)
        return prompt_rows(
            spoken.text,
            config=self.model.config,
            encode=self._encode,
            template=self._template,
            continuation=None if spoken.frames is None else spoken.frames[:, 1:],
        )

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def load_voice(name: str | Path) -> Voice:
    """Load a bundled voice by name, or a checkpoint directory by path.

    Raises `VoxradixError` when there is no such voice or the directory cannot be used.
    """
    if not isinstance(name, str | Path):
        raise VoxradixError(f"the voice is {name!r}; it must be a bundled voice's name or a checkpoint directory")
    directory = Path(name)
    if isinstance(name, str) and name in bundled_voices():
        directory = _BUNDLED / name
    elif not directory.is_dir():
        known = ", ".join(bundled_voices())
        raise VoxradixError(f"{str(name)!r} is neither a bundled voice ({known}) nor a checkpoint directory")
    settings = read_json(directory / "voice.json") if (directory / "voice.json").exists() else {}
    generation = directory / "generation_config.json"
    defaults = read_json(generation) if generation.exists() else {}
    return Voice(
        name=directory.resolve().name,
        directory=directory,
        model=load(directory),
        sampling=_sampling(defaults, generation),
        max_frames=_whole(defaults, "max_new_frames", _MAX_FRAMES, generation),
        settings=settings,
    )


def _sampling(defaults: Mapping[str, object], path: Path) -> Sampling:
    card = Sampling()

    def draw(prefix: str, default: Draw) -> Draw:
        return Draw(
            temperature=_number(defaults, f"{prefix}_temperature", default.temperature, path),
            top_p=_number(defaults, f"{prefix}_top_p", default.top_p, path),
            top_k=_whole(defaults, f"{prefix}_top_k", default.top_k, path, least=0),
        )

    penalty = _number(defaults, "audio_repetition_penalty", card.repetition_penalty, path)
    try:
        return Sampling(draw("text", card.stop), draw("audio", card.codes), penalty)
    except VoxradixError as error:
        raise VoxradixError(f"{path}: {error}") from None


def _number(values: Mapping[str, object], name: str, default: float, path: Path) -> float:
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        raise VoxradixError(f"{path}: {name} is {value!r}; it must be a finite number")
    return float(value)


def _whole(values: Mapping[str, object], name: str, default: int, path: Path, least: int = 1) -> int:
    value = _number(values, name, default, path)
    if value != int(value) or value < least:
        raise VoxradixError(f"{path}: {name} is {value:g}; it must be a whole number of at least {least}")
    return int(value)
