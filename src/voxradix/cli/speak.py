"""The `speak` command: lines of text in, WAV files out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from torch import Tensor

from voxradix.audio import check_writable, wav_bytes, write_file
from voxradix.cli.terminal import say
from voxradix.engine import Engine, Result
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import MossLocal
from voxradix.sampling import Sampling
from voxradix.voice import Voice

STANDARD_OUTPUT = Path("-")
_SMALL = 50_000_000
"""Parameters below which one thread serves."""


@dataclass(frozen=True, slots=True)
class Line:
    """A text to speak, the WAV file to write (`STANDARD_OUTPUT` for standard output), and its place in a text file."""

    text: str
    output: Path
    place: str = ""


def one_line(output: Path) -> Path:
    """The output of a single text, known to be writable."""
    if output != STANDARD_OUTPUT:
        check_writable(output)
    elif sys.stdout is None or sys.stdout.isatty():
        raise VoxradixError("standard output is closed or a terminal; name a file to write, or pipe it on")
    return output


def text_lines(path: Path, directory: Path) -> list[Line]:
    """The lines of a text file that are not blank; line 7 goes to ``directory/007.wav``."""
    try:
        texts = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
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


def speak_lines(lines: list[Line], voice: Voice, *, sampling: Sampling, seed: int, max_frames: int | None) -> bool:
    """Speak all lines in one engine; write each one's WAV, and print its figures, as soon as it is spoken.

    Raises `VoxradixError` before anything is computed if a text or setting cannot be used.

    Returns:
        Whether all lines were spoken; what failed is said on standard error.
    """
    codec = voice.codec
    engine = Engine(voice)
    requests = {
        engine.submit(_prompt(line, voice), sampling=sampling, seed=seed, max_frames=max_frames): line for line in lines
    }
    started = perf_counter()
    audio_seconds, spoken = 0.0, 0
    with _Frames(codec.sample_rate / codec.samples_per_frame) as frames:
        while (report := engine.step()) is not None:
            frames.advance(len(report.gained))
            for request in report.finished:
                line, result = requests[request], request.result()
                if result.finish == "error":
                    say(f"{line.output}: {result.error}")
                    continue
                if result.finish == "length":
                    say(f"warning: {line.output}: cut off at {len(result.rows)} frames; --max-frames allows more")
                sound = codec.decode(result.codes)
                _write(line, wav_bytes(sound, codec.sample_rate))
                spoken += 1
                seconds = len(sound) / codec.sample_rate
                audio_seconds += seconds
                elapsed = perf_counter() - started
                _report(line, result, seconds, elapsed / audio_seconds if audio_seconds else 0.0)
    return spoken == len(lines)


class _Frames:
    """A progress bar on standard error, if that is a terminal, that counts frames and seconds of audio."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f} frames, {task.fields[seconds]:.1f} s of audio"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("speaking", total=None, seconds=0.0)
        self._count = 0

    def __enter__(self) -> _Frames:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self, frames: int) -> None:
        self._count += frames
        self._progress.update(self._task, completed=self._count, seconds=self._count / self._rate)


def _prompt(line: Line, voice: Voice) -> Tensor:
    try:
        unknown = voice.spoken(line.text).unknown
        prompt = voice.prompt(line.text)
    except VoxradixError as error:
        raise VoxradixError(f"{line.place}{error}") from None
    if unknown:
        words = ", ".join(dict.fromkeys(unknown))
        say(
            f"warning: {line.place}this voice was not trained to say {words}, so it spells what it can of it; "
            f"it is trained for {voice.trained_for}"
        )
    return prompt


def _write(line: Line, wav: bytes) -> None:
    if line.output == STANDARD_OUTPUT:
        sys.stdout.buffer.write(wav)
        sys.stdout.buffer.flush()
    else:
        write_file(line.output, wav)


def _report(line: Line, result: Result, seconds: float, factor: float) -> None:
    first = "none" if result.first_frame_seconds is None else f"{1000 * result.first_frame_seconds:.0f} ms"
    print(
        f"{line.output}: {len(result.rows)} frames, {seconds:.2f} s of audio, first frame {first}, "
        f"real-time factor {factor:.3f}, {result.reused_rows} of {result.prompt_rows} prefix rows reused",
        file=sys.stderr if line.output == STANDARD_OUTPUT else sys.stdout,
    )
