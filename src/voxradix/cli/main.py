"""The commands and their options; a mistake is one line on standard error and exit code 2."""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from voxradix import __version__
from voxradix.cli.choice import (
    CodecOption,
    DeviceOption,
    DtypeOption,
    MaxRowsOption,
    MemoryOption,
    ModelChoice,
    ModelOption,
    OfflineOption,
    RevisionOption,
    TrustOption,
    VoiceOption,
)
from voxradix.cli.terminal import say
from voxradix.errors import VoxradixError

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Speak with multi-codebook speech language models; never compute the same audio twice.",
)
bench_app = typer.Typer(rich_markup_mode=None, help="Measure on this machine; prints the machine with the figures.")
app.add_typer(bench_app, name="bench")


_INTERRUPTED = 130


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(f"voxradix {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def speak(
    text: Annotated[str | None, typer.Argument(help="What to say.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="WAV file [speech.wav], or - for standard output; a directory [speech] with --text-file.",
        ),
    ] = None,
    text_file: Annotated[Path | None, typer.Option(help="Speak each line of a file, all in one batch.")] = None,
    voice: VoiceOption = None,
    model: ModelOption = None,
    revision: RevisionOption = None,
    offline: OfflineOption = False,
    codec: CodecOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    max_rows: MaxRowsOption = None,
    memory: MemoryOption = None,
    language: Annotated[str | None, typer.Option(help="Language of the text, such as English.")] = None,
    instruction: Annotated[str | None, typer.Option(help="How to speak, in words.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Wished number of frames, 12.5 a second.", min=1)] = None,
    quality: Annotated[str | None, typer.Option(help="Quality of the recording, in words.")] = None,
    sound_event: Annotated[str | None, typer.Option(help="Sounds to be heard, in words.")] = None,
    ambient_sound: Annotated[str | None, typer.Option(help="The background, in words.")] = None,
    reference: Annotated[
        list[Path] | None, typer.Option(help="A recording whose voice to take; may be given again.")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            help="Go on from a saved take, or from a place in it: take.npz, take.npz@3.0s, take.npz@37f (frames). "
            "Without a text, the rest of its own is spoken anew.",
            metavar="TAKE",
        ),
    ] = None,
    said: Annotated[
        str | None,
        typer.Option(help="With --after: what is heard until there, where the voice cannot tell by itself."),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Keep the take in a file that --after goes on from.")] = None,
    takes: Annotated[int, typer.Option(help="Speak so many takes, with as many seeds from --seed on.", min=1)] = 1,
    seed: Annotated[
        int | None,
        typer.Option(
            help="The same text and seed give the same audio [default: 0; the take's with --after, and the one after "
            "it where its text is spoken anew]."
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Of codes; 0 is greedy [default: the voice's; model card: 1.7].")
    ] = None,
    top_p: Annotated[float | None, typer.Option(help="Of codes [default: the voice's; model card: 0.8].")] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Of codes; 0 keeps all [default: the voice's; model card: 25].")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Of codes [default: the voice's; model card: 1.0].")
    ] = None,
    stop_temperature: Annotated[
        float | None, typer.Option(help="Of the stop decision [default: the voice's; model card: 1.0].")
    ] = None,
    stop_top_p: Annotated[
        float | None, typer.Option(help="Of the stop decision [default: the voice's; model card: 1.0].")
    ] = None,
    stop_top_k: Annotated[
        int | None, typer.Option(help="Of the stop decision [default: the voice's; model card: 50].")
    ] = None,
    max_frames: Annotated[int | None, typer.Option(help="Longest audio, in frames [default: the voice's].")] = None,
    threads: Annotated[
        int | None, typer.Option(help="torch threads [default: one for a small model, else torch's].", min=1, max=1024)
    ] = None,
) -> None:
    """Turn text into a WAV file."""
    from voxradix.audio import read_recording
    from voxradix.cli.speak import (
        Line,
        chosen_sampling,
        one_line,
        place_in_take,
        speak_lines,
        take_lines,
        text_lines,
        use_threads,
    )
    from voxradix.engine import Branch, Engine
    from voxradix.models.moss_local import Details

    choice = ModelChoice(voice, model, revision, offline, codec, trust_remote_code, device, dtype, max_rows, memory)
    details = Details(language, instruction, tokens, quality, sound_event, ambient_sound)
    if text is not None and text_file is not None:
        raise VoxradixError("give either a text to speak or --text-file, not both")
    if text is None and text_file is None and after is None:
        raise VoxradixError("give either a text to speak or --text-file, or a take to go on from with --after")
    if said is not None and after is None:
        raise VoxradixError(f"--said {said!r} is for a place in a take; name one with --after")
    source = None if after is None else place_in_take(after, said)
    recordings = [read_recording(path) for path in reference or ()]
    if text_file is None:
        line = Line(text, output or Path("speech.wav"), after=source, save=save)
        lines = [one_line(line) for line in take_lines(line, takes)]
    elif after is not None or save is not None or takes != 1:
        raise VoxradixError("--after, --save and --takes are for one text, not for --text-file")
    else:
        lines = text_lines(text_file, output or Path("speech"))
    loaded, rows = choice.load()
    sampling = chosen_sampling(
        loaded.sampling if source is None else (source.take if isinstance(source, Branch) else source).sampling,
        codes={"temperature": temperature, "top_p": top_p, "top_k": top_k},
        stop={"temperature": stop_temperature, "top_p": stop_top_p, "top_k": stop_top_k},
        repetition_penalty=repetition_penalty,
    )
    use_threads(threads, loaded.model)
    spoken = speak_lines(
        lines,
        Engine(loaded, pool_rows=rows),
        sampling=sampling,
        seed=seed,
        max_frames=max_frames,
        details=details if details.given() else None,
        references=[loaded.reference(recording) for recording in recordings] if recordings else None,
    )
    if not spoken:
        raise typer.Exit(1)


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; other machines reach 0.0.0.0.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8000,
    voice: VoiceOption = None,
    model: ModelOption = None,
    revision: RevisionOption = None,
    offline: OfflineOption = False,
    codec: CodecOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    max_rows: MaxRowsOption = None,
    memory: MemoryOption = None,
    max_batch: Annotated[int, typer.Option(help="Takes computed at once.", min=1)] = 16,
    queue: Annotated[int, typer.Option(help="Takes that may wait; more are refused (429).", min=0)] = 64,
    max_takes: Annotated[int, typer.Option(help="Finished takes that are kept.", min=0)] = 256,
    max_input_chars: Annotated[int, typer.Option(help="Longest text, in characters.", min=1)] = 4096,
    request_timeout: Annotated[float, typer.Option(help="Seconds for a request to be spoken.", min=0.1)] = 300.0,
    stop_seconds: Annotated[float, typer.Option(help="Seconds for requests to end in on SIGTERM.", min=0.0)] = 30.0,
    api_key_file: Annotated[
        Path | None, typer.Option(help="API keys, one a line [default: those in VOXRADIX_API_KEY, if it is set].")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="torch threads [default: one for a small model, else torch's].", min=1, max=1024)
    ] = None,
) -> None:
    """Serve speech over HTTP, as OpenAI's clients ask for it; docs/serving.md tells how."""
    from voxradix.cli.serve import api_keys, require_server, run_serve

    require_server()
    from voxradix.cli.speak import use_threads
    from voxradix.engine import Engine
    from voxradix.server import Settings

    choice = ModelChoice(voice, model, revision, offline, codec, trust_remote_code, device, dtype, max_rows, memory)
    settings = Settings(
        max_batch=max_batch,
        queue=queue,
        max_takes=max_takes,
        max_input_chars=max_input_chars,
        request_seconds=request_timeout,
        stop_seconds=stop_seconds,
        keys=api_keys(api_key_file),
        loopback=host in ("127.0.0.1", "localhost", "::1"),
    )
    loaded, rows = choice.load()
    use_threads(threads, loaded.model)
    run_serve(host, port, lambda: Engine(loaded, max_batch=max_batch, pool_rows=rows), settings)


@app.command()
def verify(
    device: Annotated[str, typer.Option(help="Where the row keys are checked: cpu or cuda.")] = "cpu",
    full: Annotated[
        bool, typer.Option("--full", help="Run every cell of the matrix, and not only all pairs of its axes.")
    ] = False,
) -> None:
    """Check the row keys' promises, then that every way to compute audio gives the same, and print both."""
    from voxradix.cli.matrix import run_matrix
    from voxradix.cli.verify import run_verify

    checked, equal = run_verify(device), run_matrix(full)
    if not (checked and equal):
        raise typer.Exit(1)


@app.command()
def collisions(
    plots: Annotated[
        Path | None, typer.Option(help="Draw PNG plots into this directory (needs voxradix[lab]).")
    ] = None,
    frames: Annotated[int, typer.Option(help="Frames of the bundled voice to look at.", min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="Of the random rows.")] = 0,
) -> None:
    """What the row keys are worth: clashes, structured clashes, forgeries."""
    from voxradix.cli.collisions import run_collisions

    run_collisions(plots, frames, seed)


@bench_app.command()
def frames(
    model: ModelOption = None,
    offline: OfflineOption = False,
    codec: CodecOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    max_rows: MaxRowsOption = None,
    requests: Annotated[str, typer.Option(help="Requests at once, comma-separated.")] = "1,4,16",
    repeats: Annotated[int, typer.Option(help="Runs of each; the median is printed.", min=1)] = 5,
    threads: Annotated[
        int | None, typer.Option(help="torch threads [default: as speak chooses].", min=1, max=1024)
    ] = None,
) -> None:
    """Frames per second, real-time factor and peak memory at several batch sizes."""
    from voxradix.cli.bench import bench_frames

    counts = _whole_numbers("--requests", requests)
    choice = ModelChoice(
        model=model,
        offline=offline,
        codec=codec,
        trust_remote_code=trust_remote_code,
        device=device,
        dtype=dtype,
        max_rows=max_rows,
    )
    bench_frames(choice, counts, repeats, threads)


@bench_app.command()
def keys(batches: Annotated[str, typer.Option(help="Rows at once, comma-separated.")] = "1,4,16,64,256") -> None:
    """Microseconds and operators of each implementation of the row keys."""
    from voxradix.cli.bench_keys import bench_keys

    bench_keys(_whole_numbers("--batches", batches))


@bench_app.command()
def cache(
    seconds: Annotated[str, typer.Option(help="Audio behind a continuation, comma-separated.")] = "5,30,120",
    repeats: Annotated[int, typer.Option(help="Runs of each; the median is printed.", min=1)] = 3,
    rows: Annotated[str, typer.Option(help="Rows in the tree, comma-separated.")] = "1000,10000,100000,1000000",
    threads: Annotated[int | None, typer.Option(help="torch threads [default: torch's].", min=1, max=1024)] = None,
) -> None:
    """What cached audio is worth on a random checkpoint of 100 million parameters; the tree's own speed and memory."""
    import torch

    from voxradix.cli.bench_cache import bench_cache
    from voxradix.models.moss_local.random_checkpoint import HUNDRED_MILLION

    behind, sizes = _whole_numbers("--seconds", seconds), _whole_numbers("--rows", rows)
    if threads is not None:
        torch.set_num_threads(threads)
    bench_cache(HUNDRED_MILLION, behind, repeats, sizes)


@bench_app.command()
def step(
    requests: Annotated[str, typer.Option(help="Requests at once, comma-separated.")] = "1,4,8,16",
    repeats: Annotated[int, typer.Option(help="Runs of each kind; the median is printed.", min=1, max=12)] = 12,
    threads: Annotated[int | None, typer.Option(help="torch threads [default: torch's].", min=1, max=1024)] = None,
) -> None:
    """Milliseconds of a decode step on a random checkpoint of 100 million parameters, beside its bare products."""
    import torch

    from voxradix.cli.bench_step import bench_step
    from voxradix.models.moss_local.random_checkpoint import HUNDRED_MILLION

    counts = _whole_numbers("--requests", requests)
    if threads is not None:
        torch.set_num_threads(threads)
    bench_step(HUNDRED_MILLION, counts, repeats)


@bench_app.command("serve")
def serve_figures(
    model: ModelOption = None,
    clients: Annotated[str, typer.Option(help="Clients at once, comma-separated.")] = "1,8,32",
    seconds: Annotated[float, typer.Option(help="Time for each.", min=0.1)] = 20.0,
    threads: Annotated[
        int | None, typer.Option(help="torch threads [default: as serve chooses].", min=1, max=1024)
    ] = None,
) -> None:
    """Requests and audio a second, and the time to the first audio, over HTTP."""
    from voxradix.cli.bench_serve import bench_serve

    options = [] if model is None else ["--model", model]
    options += [] if threads is None else ["--threads", str(threads)]
    bench_serve(_whole_numbers("--clients", clients), seconds, options)


def _whole_numbers(option: str, text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise VoxradixError(f"{option} is {text!r}; it must be whole numbers above 0, such as 1,4,16")
    return numbers


def main() -> None:
    """Run the command line; never a traceback for a user's mistake."""
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a file name may hold what no encoding has
            stream.reconfigure(errors="backslashreplace")
    try:
        status = app(standalone_mode=False)
    except (VoxradixError, typer.TyperException) as error:
        say(error.format_message() if isinstance(error, typer.BadParameter) else str(error))
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        say("interrupted")
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:  # what was printed could not be: a full disk
        say(str(error))
        sys.exit(1)
    if status == _INTERRUPTED:  # the library has caught the key press itself
        say("interrupted")
    sys.exit(status if isinstance(status, int) else 0)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    say(f"warning: {message}")
