"""Makes the voice from nothing: `python -m training.run`. README.md says what it needs and takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import voxradix
from training import codec
from training.corpus import Corpus
from training.data import make
from training.evaluate import report
from training.export import export
from training.teacher import Teacher
from training.train import Plan, fresh_model, train

WORK = Path(__file__).with_name("work")
VOICE = Path(voxradix.__file__).parent / "voices" / "numbers"
LINES = 9000
STEPS = 2400
TEXT_SEED, SEED = 1, 0


@contextmanager
def _stage(name: str) -> Iterator[None]:
    begun = time.monotonic()
    print(f"{name} ...", flush=True)
    yield
    print(f"{name}: {(time.monotonic() - begun) / 60:.1f} minutes", flush=True)


def main() -> None:
    """All stages in order; the corpus, once made, is kept and used again."""
    torch.set_num_threads(1)
    WORK.mkdir(exist_ok=True)
    with _stage("teacher speech"):
        path = WORK / "corpus.npz"
        if not path.exists():
            make(LINES, TEXT_SEED).save(path)
        corpus = Corpus.load(path)
    with _stage("codec"):
        weight, bias = map(torch.from_numpy, Teacher().head())
        fitted = codec.fit(corpus.latents, corpus.f0, (weight, bias), SEED)
        codes = fitted.encode(corpus.latents, corpus.f0)
    with _stage("language model"):
        model = fresh_model(SEED)
        train(model, corpus, codes, Plan(STEPS, seed=SEED), WORK / "model.pt")
    with _stage("export"):
        export(model, fitted, VOICE)
    with _stage("evaluation"):
        report(VOICE)


if __name__ == "__main__":
    main()
