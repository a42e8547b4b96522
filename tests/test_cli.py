"""The command line: text in, WAV out; a mistake is one line and exit code 2."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile
import torch

from voxradix import Engine, Take
from voxradix.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command line in a directory of its own: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["voxradix", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return int(exit_.value.code or 0), out, err

    return call


def test_speak_writes_a_wav_and_one_line_of_figures(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("speak", "four eight one five", "-o", "digits.wav")
    assert code == 0
    samples, rate = soundfile.read(tmp_path / "digits.wav")
    assert rate == 24000 and len(samples) > rate and abs(samples).max() > 0.1
    assert out.count("\n") == 1
    for part in (
        "digits.wav: ",
        " frames, ",
        " s of audio",
        "first frame ",
        "real-time factor ",
        " prefix rows reused",
    ):
        assert part in out


def test_the_same_seed_gives_the_same_file_and_another_seed_another(run: Run, tmp_path: Path) -> None:
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert run("speak", "seven", "-o", f"{name}.wav", "--seed", seed, "--temperature", "1.0")[0] == 0
    a, b, c = ((tmp_path / f"{name}.wav").read_bytes() for name in "abc")
    assert a == b != c


def test_a_text_file_is_spoken_line_by_line_each_as_it_would_be_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one two\n\nthree four five\n")
    code, out, _ = run("speak", "--text-file", "lines.txt", "-o", "made")
    assert code == 0 and out.count("\n") == 2
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["001.wav", "003.wav"]
    run("speak", "three four five", "-o", "alone.wav")
    assert (tmp_path / "alone.wav").read_bytes() == (tmp_path / "made" / "003.wav").read_bytes()


def test_lines_that_are_spoken_are_written_before_the_rest_is_done(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines.txt").write_text("one\none two three four five six seven\n")
    steps = 0
    step = Engine.step

    def interrupted(self: Engine) -> object:
        nonlocal steps
        steps += 1
        if steps > 25:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(Engine, "step", interrupted)
    code, out, err = run("speak", "--text-file", "lines.txt", "-o", "made")
    assert code == 130 and "interrupted" in err
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["001.wav"] and "001.wav" in out


def test_the_line_that_cannot_be_spoken_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one\n\n\u4f60\n")
    code, _, err = run("speak", "--text-file", "lines.txt", "-o", "made")
    assert code == 2 and "line 3: there is nothing this voice can say" in err


def test_a_long_text_is_spoken_sentence_by_sentence(run: Run) -> None:
    code, out, _ = run("speak", "one two three four five. " * 6, "-o", "long.wav")
    assert code == 0 and int(out.split()[1]) > 100


def test_a_saved_take_is_gone_on_from_and_branched_off_in_another_process_as_in_one(run: Run, tmp_path: Path) -> None:
    assert run("speak", "four eight one", "--save", "take.npz", "-o", "a.wav", "--seed", "5")[0] == 0
    take = Engine("numbers").speak("four eight one", seed=5)
    assert torch.equal(Take.load(tmp_path / "take.npz").rows, take.rows)
    engine = Engine("numbers")
    for arguments, expected in (
        (("nine", "--after", "take.npz"), engine.speak("nine", after=take)),
        (("nine", "--after", "take.npz@0.5s"), engine.speak("nine", after=take.at(frames=6))),
        (("--after", "take.npz@6f", "--temperature", "1"), None),
        (("--after", "take.npz@6f", "--seed", "5"), take),
        (("--after", "take.npz@6f"), engine.speak(after=take.at(frames=6), seed=6)),
    ):
        code, out, err = run("speak", *arguments, "-o", "b.wav", "--save", "b.npz")
        assert code == 0, err
        made = Take.load(tmp_path / "b.npz")
        if expected is not None:
            assert torch.equal(made.rows, expected.rows)
        kept = 6 if "@" in "".join(arguments) else take.frames
        assert f"{made.frames} frames, {kept} of them kept" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--threads", "3000000000"), "--threads"),
        (("--after", "a" * 300 + ".npz@3f"), "cannot be looked into"),
        (("--after", "t.npz@" + "9" * 500 + "f"), "t.npz"),
        (("--said", "one"), "--said 'one' is for a place in a take"),
    ],
)
def test_odd_values_are_one_line_and_exit_code_2(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, _, err = run("speak", "three", *arguments)
    assert code == 2 and message in err and err.strip().count("\n") == 0


def test_takes_of_one_text_are_numbered(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("speak", "four eight", "--takes", "3", "-o", "x.wav", "--save", "t.npz", "--seed", "8")
    assert code == 0 and out.count("\n") == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"{n}-{i}.{e}" for n, e in (("t", "npz"), ("x", "wav")) for i in (1, 2, 3)
    ]
    assert [Take.load(tmp_path / f"t-{i}.npz").seed for i in (1, 2, 3)] == [8, 9, 10]


def test_a_dash_sends_the_wav_to_standard_output_and_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "voxradix", "speak", "nine", "-o", "-"], capture_output=True, check=True, timeout=120
    )
    samples, rate = soundfile.read(io.BytesIO(done.stdout))
    assert rate == 24000 and len(samples) > 0
    assert b"frames" in done.stderr


def test_words_outside_the_training_are_spoken_with_a_warning_that_says_what_it_was_trained_for(run: Run) -> None:
    code, _, err = run("speak", "two zebras", "-o", "x.wav")
    assert code == 0
    assert "warning: this voice was not trained to say zebras, so it spells" in err
    assert "it is trained for digit strings, numbers" in err


def test_audio_cut_off_by_the_budget_says_so(run: Run) -> None:
    code, out, err = run("speak", "four eight one five", "-o", "x.wav", "--max-frames", "5")
    assert code == 0 and ": 5 frames" in out
    assert "cut off at 5 frames" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speak"], "give either a text to speak or --text-file, or a take to go on from"),
        (["speak", "one", "--after", "none.npz"], "none.npz does not exist"),
        (["speak", "--after", "none.npz@3"], "a place looks like take.npz@3.0s"),
        (["speak", "one", "-o", "x.npz", "--save", "./x.npz"], "-o and --save both name"),
        (["speak", "--after", "none.npz@3s"], "none.npz does not exist"),
        (["speak", "one", "--after", "."], "cannot be read"),
        (["speak", "one", "--takes", "0"], "'--takes'"),
        (["speak", "one", "--takes", "2", "-o", "-"], "standard output takes one WAV file"),
        (["speak", "one", "--save", "no/where.npz"], "cannot be written"),
        (["speak", "--text-file", "x", "--save", "t.npz"], "are for one text"),
        (["speak", "one", "--text-file", "x"], "give either a text"),
        (["speak", ""], "nothing"),
        (["speak", "  "], "nothing"),
        (["speak", "one", "--voice", "nobody"], "'nobody' is neither a bundled voice (numbers)"),
        (["speak", "one", "--model", "nowhere"], "'nowhere' is neither"),
        (["speak", "one", "--model", ".", "--voice", "numbers"], "exclude each other"),
        (["speak", "one", "--model", "."], "config.json does not exist"),
        (["speak", "one", "--temperature", "-1"], "temperature, unless 0, is -1.0; it must be a number from"),
        (["speak", "one", "--top-p", "1.5"], "top_p is 1.5"),
        (["speak", "one", "--top-k", "-3"], "top_k is -3"),
        (["speak", "one", "--repetition-penalty", "0"], "repetition penalty is 0.0"),
        (["speak", "one", "--stop-top-p", "0"], "top_p is 0.0"),
        (["speak", "one", "--max-frames", "0"], "max_frames is 0"),
        (["speak", "one", "--max-frames", "100000"], "100000 frames) but the pool holds"),
        (["speak", "one", "--seed", "99999999999999999999"], "64-bit"),
        (["speak", "one", "--seed", "x"], "--seed"),
        (["speak", "one", "--nonsense"], "--nonsense"),
        (["speak", "one", "-o", "no/such/place.wav"], "no/such is not a directory"),
        (["speak", "one", "-o", "."], "is a directory"),
        (["speak", "one", "-o", "x" * 300 + ".wav"], "cannot be written"),
        (["speak", "--text-file", "some.txt", "-o", "taken"], "001.wav is a directory"),
        (["speak", "--text-file", "nowhere.txt"], "nowhere.txt cannot be read"),
        (["speak", "--text-file", "empty.txt"], "has no line to speak"),
        (["speak", "--text-file", "binary.txt"], "cannot be read as UTF-8"),
        (["speak", "--text-file", "some.txt", "-o", "-"], "-o names a directory"),
        (["speak", "--text-file", "some.txt", "-o", "some.txt"], "cannot be made a directory"),
        (["bench", "frames", "--requests", "1,x"], "--requests is '1,x'"),
        (["bench", "keys", "--batches", "99999999999999999999999"], "at most 1000000"),
        (["collisions", "--seed", "99999999999999999999999"], "--seed is 99999999999999999999999"),
        (["collisions", "--plots", "some.txt"], "cannot be made a directory"),
        (["verify", "--device", "tpu"], "must be cpu or cuda"),
        (["nonsense"], "nonsense"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: list[str], message: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "some.txt").write_text("one\n")
    (tmp_path / "taken" / "001.wav").mkdir(parents=True)
    code, out, err = run(*arguments)
    assert code == 2, err
    assert out == "" and err.count("\n") == 1
    assert err.startswith("voxradix: ") and message in err
    assert not [path for path in tmp_path.rglob("*.wav") if path.is_file()], "no half-written WAV"


def test_a_link_keeps_pointing_where_it_did_and_a_device_stays_a_device(run: Run, tmp_path: Path) -> None:
    (tmp_path / "link.wav").symlink_to(tmp_path / "target.wav")
    assert run("speak", "one", "-o", "link.wav")[0] == 0
    assert (tmp_path / "link.wav").is_symlink() and (tmp_path / "target.wav").stat().st_size > 1000
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, cwd=tmp_path)
    assert run("speak", "one", "-o", "pipe")[0] == 0
    assert reader.communicate(timeout=30)[0] == (tmp_path / "target.wav").read_bytes()
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory_is_said_before_anything_is_computed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    code, _, err = run("speak", "one", "-o", "closed/x.wav")
    assert code == 2 and "not writable" in err


def test_the_version_and_the_help_are_there(run: Run) -> None:
    assert run("--version")[1].startswith("voxradix 0.")
    assert "speak" in run()[1]
    assert "--text-file" in run("speak", "--help")[1]
