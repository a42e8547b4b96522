"""From the fields of a request to what the engine is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from voxradix.audio import Container
from voxradix.engine import Branch, Take, next_seed, script
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import Details
from voxradix.sampling import Draw, Sampling
from voxradix.server.body import SpeechBody
from voxradix.server.decoder import Decoder
from voxradix.server.desk import Order, SpeechDetails
from voxradix.server.fields import SpeechFields, VoiceName
from voxradix.server.refusal import Refusal
from voxradix.server.settings import Settings
from voxradix.server.takes import TakeShelf
from voxradix.voice import Voice

MODEL = "voxradix"
"""The name that every server's model answers to, beside its own."""


def require_places(body: SpeechBody, voice: Voice) -> None:
    """Raise `Refusal` that names what the voice does not take."""
    fields = body.fields
    for field, place, value in (
        ("language", "language", fields.language),
        ("instructions", "instruction", fields.instructions),
        ("reference", "references", body.reference),
    ):
        if value is not None and not voice.takes(place):
            raise Refusal(400, f"{field} is given, and voice {voice.name!r} takes none; leave it out", param=field)


async def details_of(body: SpeechBody, voice: Voice, decoder: Decoder) -> SpeechDetails:
    """What a prompt says beside its text. A recording is worked on in the codec's thread, once its turn has come.

    Raises `Refusal` for one that is no sound.
    """
    fields = body.fields
    details = Details(language=fields.language, instruction=fields.instructions)
    references: tuple[Tensor, ...] | None = None
    if body.reference is not None:
        try:
            references = (await decoder.run(voice.reference, body.reference),)
        except VoxradixError as error:
            raise Refusal(400, str(error), param="reference") from None
    return SpeechDetails(details if details.given() else None, references)


def require_model(name: str, voice: Voice) -> None:
    """Refuse a model that is not served here, as OpenAI does."""
    if name not in (MODEL, voice.name):
        raise Refusal(
            404,
            f"the model {name[:64]!a} does not exist; this server has {voice.name!r}, also called {MODEL!r}",
            param="model",
            code="model_not_found",
        )


def container_of(name: str, known: Mapping[str, Container]) -> Container:
    """The container of a name. Raises `Refusal` for one that cannot be written here."""
    if name not in known:
        raise Refusal(
            400,
            f"response_format is {name[:64]!a}; this server writes {', '.join(known)}",
            param="response_format",
        )
    return known[name]


def place_of(fields: SpeechFields, shelf: TakeShelf, salt: str) -> Take | Branch | None:
    """The take, or the place in one, to go on from."""
    at = {"at_seconds": fields.at_seconds, "at_frames": fields.at_frames}
    named = [name for name, value in at.items() if value is not None]
    if fields.take is None:
        for name in [*named, *(["said"] if fields.said is not None else [])]:
            raise Refusal(400, f"{name} is a place in a take, but no take is named; give take too", param=name)
        return None
    take = shelf.get(fields.take, salt).take
    if not named:
        if fields.said is not None:
            raise Refusal(400, "said is for a place in the take; give at_seconds or at_frames too", param="said")
        return take
    if len(named) == 2:
        raise Refusal(400, "at_seconds and at_frames both name a place; give one of them", param="at_frames")
    try:
        return take.at(frames=fields.at_frames, seconds=fields.at_seconds, said=fields.said)
    except VoxradixError as error:
        param = "said" if str(error).startswith("said") else named[0]
        raise Refusal(400, str(error), param=param) from None


def checked(fields: SpeechFields, voice: Voice, settings: Settings) -> None:
    """Refuse values that are of the right kind and not for this server."""
    require_model(fields.model, voice)
    name = fields.voice.id if isinstance(fields.voice, VoiceName) else fields.voice
    if name is not None and name != voice.name:
        raise Refusal(400, f"voice is {name[:64]!a}; this server has {voice.name!r}", param="voice")
    if fields.speed != 1.0:
        raise Refusal(400, f"speed is {fields.speed}; this voice speaks at its own speed, 1.0", param="speed")
    if fields.input is not None and len(fields.input) > settings.max_input_chars:
        raise Refusal(
            400,
            f"input has {len(fields.input)} characters; it must have at most {settings.max_input_chars}",
            param="input",
            code="string_above_max_length",
        )
    if not fields.input and fields.take is None:
        raise Refusal(400, "input is empty; give a text to speak, or a take to go on from", param="input")
    if fields.details and fields.stream_format != "sse":
        raise Refusal(400, "details are events; set stream_format to 'sse' too", param="details")
    if fields.new_only and fields.take is None:
        raise Refusal(400, "new_only is for a reply that goes on from a take; name one in take", param="new_only")


def order_of(
    fields: SpeechFields, details: SpeechDetails, after: Take | Branch | None, voice: Voice, salt: str
) -> Order:
    """What the engine is asked for. For a long text it takes a while: not for an event loop.

    Raises `Refusal` when the text cannot be spoken.
    """
    try:
        lines = script(voice, fields.input or None, after)
    except VoxradixError as error:
        raise Refusal(400, str(error), param="input") from None
    if details.references is not None and lines.behind:
        raise Refusal(400, "reference is given with audio to go on from, which has its own voice", param="reference")
    take = after.take if isinstance(after, Branch) else after
    seed = fields.seed
    if seed is None:
        seed = 0 if take is None else take.seed
        if lines.own and isinstance(after, Branch):
            seed = next_seed(seed)
    return Order(
        script=lines,
        after=after,
        sampling=_sampling(fields, voice.sampling if take is None else take.sampling),
        seed=seed,
        max_frames=fields.max_frames,
        salt=salt,
        details=details,
    )


def _sampling(fields: SpeechFields, base: Sampling) -> Sampling:
    def draw(of: Draw, temperature: float | None, top_p: float | None, top_k: int | None) -> Draw:
        given = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
        return replace(of, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]

    penalty = fields.repetition_penalty
    return Sampling(
        stop=draw(base.stop, fields.stop_temperature, fields.stop_top_p, fields.stop_top_k),
        codes=draw(base.codes, fields.temperature, fields.top_p, fields.top_k),
        repetition_penalty=base.repetition_penalty if penalty is None else penalty,
    )
