"""Takes: one goes on from audio that exists, and the cache changes how fast, never what is heard."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from voxradix import Draw, Engine, Sampling, Take, VoxradixError
from voxradix.piece import End
from voxradix.voice import Voice, load_voice

FREE = Sampling(stop=Draw(temperature=0.0), codes=Draw(temperature=1.0, top_p=0.8, top_k=25))
PENALISED = replace(FREE, repetition_penalty=1.2)
WAYS = pytest.mark.parametrize("sampling", [None, FREE, PENALISED], ids=["as trained", "free", "penalised"])
TEXT = "four eight one"
LONG = "four eight one five. nine two three. six six seven one. two five five, eight. one thousand two. three nine."


@pytest.fixture(scope="module")
def numbers() -> Voice:
    return load_voice("numbers")


def cold(voice: Voice) -> Engine:
    return Engine(voice, cache=False)


@WAYS
def test_a_take_continued_warm_is_the_take_continued_cold_at_every_frame(
    numbers: Voice, sampling: Sampling | None
) -> None:
    warm = Engine(numbers)
    take = warm.speak(TEXT, sampling=sampling, seed=7)
    for frames in range(take.frames):
        a = warm.speak(after=take.at(frames=frames), max_frames=5)
        b = cold(numbers).speak(after=take.at(frames=frames), max_frames=5)
        assert torch.equal(a.rows, b.rows) and torch.equal(a.rows[:frames], take.rows[:frames])
        assert a.reused_generated_rows == max(frames - 1, 0), "the frames before the branch are not computed again"
        assert b.reused_generated_rows == b.reused_prompt_rows == 0
        assert a.seed == 8, "the rest is spoken anew"


@WAYS
def test_another_text_from_every_frame_is_the_same_warm_and_cold(numbers: Voice, sampling: Sampling | None) -> None:
    warm = Engine(numbers)
    take = warm.speak(TEXT, sampling=sampling, seed=7)
    for frames in range(0, take.frames + 1, 3):
        a = [warm.speak("six two", after=take.at(frames=frames), seed=seed, max_frames=5) for seed in (1, 2)]
        b = cold(numbers).speak("six two", after=take.at(frames=frames), seed=2, max_frames=5)
        assert torch.equal(a[1].rows, b.rows)
        assert a[1].reused_prompt_rows + a[1].reused_generated_rows == a[1].prompt_rows - 1


@WAYS
def test_a_branch_with_its_own_seed_is_the_take_again_at_every_frame(numbers: Voice, sampling: Sampling | None) -> None:
    engine = Engine(numbers)
    take = engine.speak(TEXT, sampling=sampling, seed=7)
    for frames in range(take.frames):
        again = engine.speak(after=take.at(frames=frames), seed=7)
        assert torch.equal(again.rows, take.rows), f"branched off after {frames} frames"
        assert again.text == TEXT and again.finish == "audio_end"


@WAYS
def test_a_take_that_spent_its_budget_goes_on_as_if_it_had_not(numbers: Voice, sampling: Sampling | None) -> None:
    engine = Engine(numbers)
    whole = engine.speak(LONG, sampling=sampling, seed=3)
    assert whole.finish == "audio_end" and len(whole.pieces) == 3
    for budget in (1, len(whole.pieces[0].rows), 40):
        short = engine.speak(LONG, sampling=sampling, seed=3, max_frames=budget)
        assert short.finish == "length" and short.frames == budget
        assert torch.equal(engine.speak(after=short).rows, whole.rows)


def test_a_long_text_is_spoken_at_its_sentences_each_after_those_that_fit_the_window(numbers: Voice) -> None:
    engine = Engine(numbers)
    speaking = engine.begin(LONG, seed=3)
    heard: list[torch.Tensor] = []
    done = []
    while speaking.proceed(heard.append):
        engine.step()
        done.append(speaking.done)
    take = speaking.take()
    assert [piece.text for piece in take.pieces] == [
        "four eight one five. nine two three.",
        "six six seven one. two five five, eight.",
        "one thousand two. three nine.",
    ]
    assert all(piece.end is End.ENDED for piece in take.pieces)
    assert sorted(set(done)) == [0, 1, 2] and speaking.done == 3, "progress counts the texts"
    assert torch.equal(torch.stack(heard), take.rows) and take.new_frames == take.frames
    first, second, third = take.results
    assert second.prompt_rows > first.prompt_rows + len(first.rows), "the audio so far is the context"
    assert third.prompt_rows < second.prompt_rows + len(second.rows) + 20, "no more than the window holds"


def test_a_branch_in_a_long_take_speaks_the_texts_after_it_too(numbers: Voice) -> None:
    engine = Engine(numbers)
    take = engine.speak(LONG, seed=3)
    first = len(take.pieces[0].rows)
    for frames in (0, 5, first, first + 4):
        again = engine.speak(after=take.at(frames=frames), seed=3)
        assert torch.equal(again.rows, take.rows)
        assert [piece.text for piece in again.pieces] == [piece.text for piece in take.pieces]


def test_takes_of_one_text_share_its_prompt_and_each_is_as_it_would_be_alone(numbers: Voice) -> None:
    engine = Engine(numbers)
    takes = engine.speak(TEXT, n=8, sampling=FREE, seed=20)
    assert [take.seed for take in takes] == list(range(20, 28))
    assert sum(take.prompt_rows - take.reused_prompt_rows for take in takes) == takes[0].prompt_rows + 7
    for take in takes[::3]:
        assert torch.equal(take.rows, cold(numbers).speak(TEXT, sampling=FREE, seed=take.seed).rows)
    assert len({take.rows.numpy().tobytes() for take in takes}) > 1


def test_another_salt_hits_nothing_and_hears_the_same(numbers: Voice) -> None:
    engine = Engine(numbers)
    mine = engine.speak(TEXT, salt="a", seed=4)
    theirs = engine.speak(TEXT, salt="b", seed=4)
    again = engine.speak(TEXT, salt="a", seed=4)
    assert theirs.reused_prompt_rows == 0 and again.reused_prompt_rows == mine.prompt_rows - 1
    assert torch.equal(mine.rows, theirs.rows)
    for salt in ("", "ab", "a\0"):
        assert engine.speak(TEXT, salt=salt, max_frames=1).reused_prompt_rows == 0
    engine.check()


def test_pinned_prompts_outlive_everything_that_is_not(numbers: Voice) -> None:
    engine = Engine(numbers, pool_rows=60)
    assert engine.pin(TEXT) == numbers.prompt(TEXT).shape[0]

    def fill(numbers_spoken: range) -> None:
        for number in numbers_spoken:
            for _ in range(2):
                engine.speak(str(number), seed=number, max_frames=4)

    fill(range(20, 30))
    engine.check()
    assert engine.speak(TEXT, max_frames=4).reused_prompt_rows == numbers.prompt(TEXT).shape[0] - 1
    engine.unpin(TEXT)
    with pytest.raises(VoxradixError, match="is not pinned"):
        engine.unpin(TEXT)
    fill(range(30, 60))
    assert engine.speak(TEXT, max_frames=4).reused_prompt_rows < numbers.prompt(TEXT).shape[0] - 1


def test_the_sums_are_those_of_the_results(numbers: Voice) -> None:
    engine = Engine(numbers)
    take = engine.speak(TEXT)
    more = engine.speak("nine", after=take)
    cut = engine.speak(after=take.at(frames=5), max_frames=2)
    totals = engine.totals
    made = (take, more, cut)
    assert (totals.requests, totals.audio_end, totals.length) == (3, 2, 1)
    assert totals.frames == sum(t.new_frames for t in made)
    assert totals.prompt_rows == sum(t.prompt_rows for t in made)
    assert totals.reused_prompt_rows == sum(t.reused_prompt_rows for t in made)
    assert totals.reused_generated_rows == sum(t.reused_generated_rows for t in made) == 4


def test_what_a_cut_take_says_is_known_by_the_place_the_voice_names(numbers: Voice) -> None:
    engine = Engine(numbers)
    take = engine.speak("four eight one five", seed=7)
    said = [
        engine.speak("nine", after=take.at(frames=frames), max_frames=1).pieces[0].text
        for frames in range(1, take.frames)
    ]
    assert said == sorted(said, key=len) and set(said) == {
        "four",
        "four eight",
        "four eight one",
        "four eight one five",
    }
    named = engine.speak("nine", after=take.at(frames=5, said="four"), max_frames=1)
    assert named.pieces[0].text == "four" and named.pieces[0].end is End.CUT


def test_leaving_a_take_frees_its_rows(numbers: Voice) -> None:
    engine = Engine(numbers)

    def leave(_: torch.Tensor) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.speak(TEXT, n=3, on_frame=leave)
    assert engine.occupancy().held == 0 and engine.step() is None
    engine.check()


def test_a_failing_piece_keeps_what_was_spoken(numbers: Voice) -> None:
    engine = Engine(numbers, pool_rows=92)
    take = engine.speak(LONG, seed=3, max_frames=70)
    assert take.finish == "error" and take.error is not None and "the pool holds 92" in take.error
    assert take.pieces and take.unsaid
    whole = Engine(numbers).speak(LONG, seed=3)
    assert torch.equal(Engine(numbers).speak(after=take).rows, whole.rows), "it goes on where there is room"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({}, "by frames or by seconds"),
        ({"frames": 3, "seconds": 1.0}, "by frames or by seconds"),
        ({"frames": -1}, "frames is -1; it must be from 0 to"),
        ({"frames": 1000}, "frames is 1000"),
        ({"frames": 2.0}, r"frames is 2\.0"),
        ({"frames": True}, "frames is True"),
        ({"seconds": -0.1}, r"seconds is -0\.1"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": 99}, "seconds is 99; it must be from 0 to the take's 0.32"),
        ({"seconds": "1"}, "seconds is '1'"),
        ({"seconds": True}, "seconds is True"),
        ({"frames": 1, "said": " "}, "said is ' '; it must be the words"),
    ],
)
def test_a_place_outside_the_take_is_refused(numbers: Voice, place: dict[str, float], message: str) -> None:
    take = Engine(numbers).speak("one", max_frames=4)
    with pytest.raises(VoxradixError, match=message):
        take.at(**place)  # type: ignore[arg-type]


def test_seconds_are_frames_that_are_over(numbers: Voice) -> None:
    take = Engine(numbers).speak("one two three", max_frames=14)
    assert [take.at(seconds=s).frames for s in (0, 0.079, 0.08, 0.16, 1.0, 1.12)] == [0, 0, 1, 2, 12, 14]


def test_what_cannot_be_spoken_is_refused_before_anything_runs(numbers: Voice) -> None:
    engine = Engine(numbers)
    take = engine.speak("one")
    requests = engine.totals.requests
    for arguments, message in (
        ({}, "neither a text to speak nor a take"),
        ({"after": take}, "has said all of its text"),
        ({"after": take.at(frames=take.frames)}, "has said all of its text"),
        ({"text": "…", "after": take}, "nothing this voice can say"),
        ({"text": "one", "n": 0}, "n is 0; it must be at least 1"),
        ({"text": "one", "n": 1.5}, "n is 1.5; it must be a whole number"),
        ({"text": "one", "seed": "x"}, "seed is 'x'"),
        ({"text": "one", "salt": 3}, "salt is 3; it must be text"),
        ({"text": "one", "n": 2, "seed": 2**63 - 1}, "64-bit"),
        ({"text": "one", "n": True}, "n is True"),
        ({"text": 42}, "text is 42; it must be text"),
        ({"text": "one", "after": "take.npz"}, "after is 'take.npz'; it must be a take"),
        ({"text": "one", "max_frames": "3"}, "max_frames is '3'; it must be a whole number"),
    ):
        with pytest.raises(VoxradixError, match=message):
            engine.speak(**arguments)
    assert engine.step() is None and engine.occupancy().held == 0
    assert engine.totals.frames == take.frames and engine.totals.requests == requests


def test_a_take_of_other_rows_is_refused_and_one_of_another_model_warned_of(numbers: Voice) -> None:
    engine = Engine(numbers)
    take = engine.speak("one")
    bounds = (*take.layout.bounds[:-1], 99)
    with pytest.raises(VoxradixError, match="this voice's are of"):
        engine.speak("two", after=replace(take, layout=replace(take.layout, bounds=bounds)))
    with pytest.warns(UserWarning, match="made by another model"):
        engine.speak("two", after=replace(take, model="0" * 64), max_frames=1)


def test_a_take_is_shown_in_one_line(numbers: Voice) -> None:
    take: Take = Engine(numbers).speak("one", max_frames=2)
    assert repr(take) == "<Take 'one': 2 frames, 0.16 s, length>"


def test_a_long_text_is_laid_out_in_time_that_grows_with_it(numbers: Voice) -> None:
    """Counted, not timed: the words of a piece are read a bounded number of times however long the text is."""
    reads = 0
    front_end = numbers._front_end
    line = front_end._line  # type: ignore[attr-defined]

    def counted(text: str, unknown: list[str]) -> list[str]:
        nonlocal reads
        reads += 1
        return line(text, unknown)  # type: ignore[no-any-return]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(front_end, "_line", counted)
        counts = []
        for sentences in (40, 80):
            reads = 0
            engine = Engine(numbers)
            engine.abort(engine.begin("one two three four five six seven. " * sentences).request)
            counts.append(reads)
    assert counts[1] < 2.2 * counts[0]


@pytest.mark.parametrize(
    "text", ["one two three four five six" + " ." * 30 + " seven" * 20, "one" + ", " * 40, "1" * 60]
)
def test_pauses_and_long_figures_are_no_parts_of_their_own(numbers: Voice, text: str) -> None:
    parts = numbers.split(text)
    said = [word for part in parts for word in numbers.spoken(part).text.split()[1:-2:2]]
    assert [w for w in said if w != ","] == (
        ["one"] * 60 if text[0] == "1" else text.replace(",", " ").replace(".", " ").split()
    )


def test_rows_computed_again_are_counted_when_they_are_computed(numbers: Voice) -> None:
    engine = Engine(numbers, cache=False, chunk_rows=4)
    request = engine.submit("four eight one five nine two six")
    while len(request.frames) < 10:
        engine.step()
    for _ in range(3):
        engine.retract(request)
        engine.step()
    engine.abort(request)
    assert request.result().recomputed_rows == 12, "three chunks of four rows"
