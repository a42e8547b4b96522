"""Speaks the held-out lines free-running and counts the words that judges hear wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from training.judge import errors, figure_errors, grammar_judge, whisper_judge
from training.model import Shape, SpeechModel
from training.rows import CODE_PAD, COLUMNS, ID, prompt
from training.texts import END, VOCABULARY, held_out
from voxradix.audio.spectral import SpectralCodec


def pick(logits: Tensor, settings: Mapping[str, float], generator: torch.Generator) -> Tensor:
    """Draw one code for each row of `logits` [n, codes]; temperature 0 takes the likeliest."""
    temperature = settings["audio_temperature"]
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits / temperature
    values, order = logits.sort(descending=True)
    chances = values.softmax(-1)
    dropped = chances.cumsum(-1) - chances >= settings["audio_top_p"]
    dropped[:, int(settings["audio_top_k"]) :] = True
    drawn = torch.multinomial(chances.masked_fill(dropped, 0.0), 1, generator=generator)
    return order.gather(1, drawn)[:, 0]


@torch.inference_mode()
def speak(
    model: SpeechModel, lines: Sequence[Sequence[str]], settings: Mapping[str, float], seed: int = 0
) -> list[Tensor]:
    """Codes [frames, 12] of each line of words (the end mark is added)."""
    generator = torch.Generator().manual_seed(seed)
    prompts = [prompt(torch.tensor([VOCABULARY.index(w) for w in [*line, END]])) for line in lines]
    starts = torch.tensor([len(p) for p in prompts])
    limit = int(settings["max_new_frames"])
    rows = torch.full((len(lines), int(starts.max()) + limit, COLUMNS), CODE_PAD)
    rows[:, :, 0] = ID["<|pad|>"]
    for i, first in enumerate(prompts):
        rows[i, : len(first)] = first
    lengths = starts.clone()
    running = torch.arange(len(lines))
    for _ in range(limit):
        hidden = model.hidden(rows[running, : int(lengths[running].max())])
        last = hidden[torch.arange(len(running)), lengths[running] - 1]
        codes = torch.zeros(len(running), 12, dtype=torch.int64)
        for book in range(12):
            stop, logits = model.decode(last, codes)
            codes[:, book] = pick(logits[:, book], settings, generator)
        going = stop[:, 0] >= stop[:, 1]
        running, codes = running[going], codes[going]
        if not len(running):
            break
        rows[running, lengths[running], 0] = ID["<|assistant_slot|>"]
        rows[running, lengths[running], 1:] = codes
        lengths[running] += 1
    return [rows[i, int(starts[i]) : int(lengths[i]), 1:] for i in range(len(lines))]


def load(directory: Path) -> SpeechModel:
    """The model of a voice directory."""
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    settings = config["qwen3_config"] | config["gpt2_config"] | config
    model = SpeechModel(Shape(**{f.name: settings[f.name] for f in fields(Shape) if f.name in settings}))
    weights = load_file(directory / "model.safetensors")
    model.load_state_dict({name: weight.float() for name, weight in weights.items()})
    return model.eval()


def report(directory: Path, whisper: bool = False, **changes: float) -> None:
    """Print word error rates of a voice on the held-out lines, by judge and kind, and every line heard wrong.

    `changes` replace the voice's own sampling settings.
    """
    settings = json.loads((directory / "generation_config.json").read_text(encoding="utf-8")) | changes
    codec = SpectralCodec.load(directory / "codec")
    lines = [line.split() for line in held_out()]
    spoken = [codec.decode(codes).numpy() for codes in speak(load(directory), lines, settings)]
    judges = {"grammar": (grammar_judge(), errors)}
    if whisper:
        judges["whisper"] = (whisper_judge(), figure_errors)
    for name, (hear, count) in judges.items():
        wrong, total = [0, 0], [0, 0]
        for i, (line, sound) in enumerate(zip(lines, spoken, strict=True)):
            heard = hear(sound, codec.sample_rate)
            missed = count(line, heard)
            wrong[i // 25] += missed
            total[i // 25] += len(line)
            if missed:
                print(f"  {name}: {' '.join(line)} | {' '.join(heard)}")
        rates = [w / t for w, t in [*zip(wrong, total, strict=True), (sum(wrong), sum(total))]]
        print(f"{name}: digits {rates[0]:.1%} numbers {rates[1]:.1%} all {rates[2]:.1%}", flush=True)


if __name__ == "__main__":
    report(Path(sys.argv[1]), whisper="--whisper" in sys.argv)
