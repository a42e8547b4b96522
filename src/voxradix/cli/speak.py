"""The `speak` command: lines of text in, WAV files out."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TypedDict, Unpack

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from torch import Tensor

from voxradix.audio import check_writable, wav_bytes, write_file
from voxradix.cli.terminal import say
from voxradix.engine import Branch, Engine, Speaking, Take
from voxradix.errors import VoxradixError
from voxradix.files import is_file
from voxradix.models.moss_local import Details, MossLocal
from voxradix.sampling import Sampling

STANDARD_OUTPUT = Path("-")
_PLACE = re.compile(r"(?P<file>.+)@(?P<number>\d+(\.\d+)?)(?P<unit>[sf])")
_SMALL = 50_000_000
"""Parameters below which one thread serves."""


@dataclass(frozen=True, slots=True)
class Line:
    """One take to speak.

    Attributes:
        text: What to say; None for the rest of ``after``.
        output: The WAV file to write; `STANDARD_OUTPUT` for standard output.
        place: Its place in a text file, for messages.
        after: The take, or the place in one, to go on from.
        save: The take file to write.
        number: Counts the takes of one text; it is added to the seed.
    """

    text: str | None
    output: Path
    place: str = ""
    after: Take | Branch | None = None
    save: Path | None = None
    number: int = 0


def one_line(line: Line) -> Line:
    """The line, whose files are known to be writable."""
    if line.output != STANDARD_OUTPUT:
        check_writable(line.output)
    elif sys.stdout is None or sys.stdout.isatty():
        raise VoxradixError("standard output is closed or a terminal; name a file to write, or pipe it on")
    if line.save is not None:
        check_writable(line.save)
        if line.save.resolve() == line.output.resolve():
            raise VoxradixError(f"-o and --save both name {line.save}; the sound and the take need a file each")
    return line


def take_lines(line: Line, takes: int) -> list[Line]:
    """A line as so many takes; with more than one, file names end in -1, -2 and so on."""
    if takes == 1:
        return [line]
    if line.output == STANDARD_OUTPUT:
        raise VoxradixError("standard output takes one WAV file; with --takes, name a file to number")
    return [
        replace(
            line,
            output=_numbered(line.output, number + 1),
            save=None if line.save is None else _numbered(line.save, number + 1),
            number=number,
        )
        for number in range(takes)
    ]


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}-{number}{path.suffix}")


def place_in_take(place: str, said: str | None) -> Take | Branch:
    """The take in a file, or with ``@3.0s`` or ``@37f`` after its name, the place at that time or frame.

    ``said`` is what is heard until there, if it is named.
    """
    match = _PLACE.fullmatch(place)
    there = is_file(Path(place))
    if match is None and "@" in place and not there:
        raise VoxradixError(f"--after {place}: no such file, and a place looks like take.npz@3.0s or take.npz@37f")
    if match is None or there:
        take = Take.load(place)
        return take if said is None else take.at(frames=take.frames, said=said)
    take = Take.load(match["file"])
    if match["unit"] == "s":
        return take.at(seconds=float(match["number"]), said=said)
    if not match["number"].isdigit():
        raise VoxradixError(f"--after {place!r}: {match['number']} is no whole number of frames")
    return take.at(frames=int(match["number"]), said=said)


def text_lines(path: Path, directory: Path) -> list[Line]:
    """The lines of a text file that are not blank; line 7 goes to ``directory/007.wav``."""
    try:
        texts = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise VoxradixError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise VoxradixError(f"{path} cannot be read as UTF-8 text: {error}") from None
    numbered = [(number, text) for number, text in enumerate(texts, start=1) if text.strip()]
    if not numbered:
        raise VoxradixError(f"{path} has no line to speak")
    if directory == STANDARD_OUTPUT:
        raise VoxradixError("standard output takes one WAV file; with --text-file, -o names a directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VoxradixError(f"{directory} cannot be made a directory: {error.strerror}") from None
    lines = [Line(text, directory / f"{number:03d}.wav", f"line {number}: ") for number, text in numbered]
    for line in lines:
        check_writable(line.output)
    return lines


def chosen_sampling(
    defaults: Sampling,
    *,
    codes: Mapping[str, float | int | None],
    stop: Mapping[str, float | int | None],
    repetition_penalty: float | None,
) -> Sampling:
    """The voice's sampling with the options that were given in place of its values."""
    penalty = defaults.repetition_penalty if repetition_penalty is None else repetition_penalty
    return Sampling(
        stop=replace(defaults.stop, **_given(stop)),  # type: ignore[arg-type]
        codes=replace(defaults.codes, **_given(codes)),  # type: ignore[arg-type]
        repetition_penalty=penalty,
    )


def _given(values: Mapping[str, float | int | None]) -> dict[str, float | int]:
    return {name: value for name, value in values.items() if value is not None}


def use_threads(wanted: int | None, model: MossLocal) -> None:
    """Set torch's threads: as wanted, else one for a model too small to keep more than one busy.

    A small model's products take microseconds; threads that wait for each other cost more than they bring, and on a
    busy machine a hundred times more.
    """
    if wanted is None and model.parameters < _SMALL:
        wanted = 1
    if wanted is not None:
        torch.set_num_threads(wanted)


class _Settings(TypedDict):
    sampling: Sampling
    seed: int | None
    max_frames: int | None
    details: Details | None
    references: list[Tensor] | None


def speak_lines(lines: list[Line], engine: Engine, **settings: Unpack[_Settings]) -> bool:
    """Speak all lines in one engine; write each one's files, and print its figures, as soon as it is spoken.

    Raises `VoxradixError` before anything is computed if a text or setting cannot be used.

    Returns:
        Whether all lines were spoken; what failed is said on standard error.
    """
    voice = engine.voice
    codec = voice.codec
    going = {_begin(engine, line, settings): line for line in lines}
    started = perf_counter()
    audio_seconds, spoken = 0.0, 0
    texts = sum(len(speaking.script.texts) for speaking in going)
    with _Frames(voice.frame_rate, texts) as frames:
        while going:
            for speaking, line in list(going.items()):
                before = speaking.done
                more = speaking.proceed(frames.frame)
                frames.texts(speaking.done - before)
                if more:
                    continue
                del going[speaking]
                take = speaking.take()
                if line.save is not None:
                    take.save(line.save)
                if take.finish == "error":
                    say(f"{line.output}: {take.error}")
                    continue
                for piece in take.pieces[len(speaking.script.behind) :]:
                    if not len(piece.rows):
                        say(f"warning: {line.output}: the voice said nothing for {piece.text!r}; try another seed")
                if take.finish == "length":
                    say(f"warning: {line.output}: cut off at {take.frames} frames; --max-frames allows more")
                _write(line, wav_bytes(codec.decode(take.codes), codec.sample_rate))
                spoken += 1
                audio_seconds += take.new_frames / take.frame_rate
                elapsed = perf_counter() - started
                _report(line, take, elapsed / audio_seconds if audio_seconds else 0.0)
            engine.step()
    return spoken == len(lines)


def _begin(engine: Engine, line: Line, settings: _Settings) -> Speaking:
    try:
        speaking = engine.begin(line.text, after=line.after, number=line.number, **settings)
    except VoxradixError as error:
        raise VoxradixError(f"{line.place}{error}") from None
    if speaking.script.unknown and not line.number:
        words = ", ".join(dict.fromkeys(speaking.script.unknown))
        say(
            f"warning: {line.place}this voice was not trained to say {words}, so it spells what it can of it; "
            f"it is trained for {engine.voice.trained_for}"
        )
    return speaking


class _Frames:
    """A progress bar on standard error, if that is a terminal: texts that are spoken, frames, seconds of audio."""

    def __init__(self, rate: float, texts: int) -> None:
        self._rate = rate
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed} of {task.total} texts, {task.fields[frames]} frames, {task.fields[seconds]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("speaking", total=texts, frames=0, seconds="0.0 s of audio")
        self._count = 0

    def __enter__(self) -> _Frames:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def frame(self, _: Tensor) -> None:
        """Count a frame."""
        self._count += 1
        seconds = f"{self._count / self._rate:.1f} s of audio"
        self._progress.update(self._task, frames=self._count, seconds=seconds)

    def texts(self, spoken: int) -> None:
        """Count texts that are spoken to their end."""
        self._progress.advance(self._task, spoken)


def _write(line: Line, wav: bytes) -> None:
    if line.output == STANDARD_OUTPUT:
        sys.stdout.buffer.write(wav)
        sys.stdout.buffer.flush()
    else:
        write_file(line.output, wav)


def _report(line: Line, take: Take, factor: float) -> None:
    first = "none" if take.first_frame_seconds is None else f"{1000 * take.first_frame_seconds:.0f} ms"
    kept = take.frames - take.new_frames
    print(
        f"{line.output}: {take.frames} frames{f', {kept} of them kept' if kept else ''}, "
        f"{take.seconds:.2f} s of audio, first frame {first}, real-time factor {factor:.3f}, "
        f"{take.reused_prompt_rows + take.reused_generated_rows} of {take.prompt_rows} prefix rows reused",
        file=sys.stderr if line.output == STANDARD_OUTPUT else sys.stdout,
    )
