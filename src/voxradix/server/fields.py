"""The fields of a speech request: their types and ranges, and what is said of a value that breaks them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from voxradix.server.refusal import Refusal
from voxradix.server.settings import MOST_TAKES

_MOST_SEED = 2**63 - 1
_LEAST = 1e-6
"""The smallest temperature above 0 (see `voxradix.sampling`)."""


def _warm(value: float) -> float:
    if 0 < value < _LEAST:
        raise ValueError(f"it must be 0 or at least {_LEAST}")
    return value


Temperature = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False), AfterValidator(_warm)]
Share = Annotated[float, Field(ge=_LEAST, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Name = Annotated[str, Field(max_length=256)]


class VoiceName(BaseModel):
    """A voice, as OpenAI's clients name one of their own."""

    model_config = ConfigDict(strict=True, extra="forbid")

    id: Name


class SpeechFields(BaseModel):
    """What is to be said, by which voice, how it is drawn, and how it is sent."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: Name = "voxradix"
    input: str | None = Field(None, description="What to say; with `take` it may be left out: the rest is said anew.")
    voice: Name | VoiceName | None = None
    instructions: Annotated[str, Field(max_length=4096)] | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    speed: Annotated[float, Field(ge=0.25, le=4, allow_inf_nan=False)] = 1.0
    stream_format: Literal["audio", "sse"] = "audio"
    seed: Annotated[int, Field(ge=-(2**63), le=_MOST_SEED)] | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Count | None = None
    repetition_penalty: Annotated[float, Field(ge=_LEAST, le=1e6, allow_inf_nan=False)] | None = None
    stop_temperature: Temperature | None = None
    stop_top_p: Share | None = None
    stop_top_k: Count | None = None
    max_frames: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_TAKES)] = 1
    take: Name | None = Field(None, description="The id of a take to go on from.")
    at_seconds: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    at_frames: Count | None = None
    said: Annotated[str, Field(max_length=4096)] | None = None
    new_only: bool = Field(False, description="Leave out the audio that existed before.")
    details: bool = Field(False, description="With sse: the events voxradix.* too.")
    language: Annotated[str, Field(max_length=64)] | None = None
    reference: str | None = Field(None, description="A recording, as a data URI; in multipart a file.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.seed is not None and self.seed > _MOST_SEED - self.n + 1:
            raise ValueError("seed is too large for n takes with as many seeds; it must be a 64-bit integer for each")
        return self

    @classmethod
    def of_json(cls, values: object) -> SpeechFields:
        """The fields of a JSON body. Raises `Refusal` (400) that names the field at fault."""
        if not isinstance(values, dict):
            raise Refusal(400, f"the body is {_shown(values)}; it must be a JSON object")
        _known(values)
        _flat(values)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise _refusal(error) from None

    @classmethod
    def of_form(cls, values: Mapping[str, str]) -> SpeechFields:
        """The fields of a form, whose values are all text."""
        _known(values)
        try:
            return cls.model_validate_strings(values)
        except ValidationError as error:
            raise _refusal(error) from None


def _known(names: Iterable[str]) -> None:
    for name in names:
        if name not in SpeechFields.model_fields:
            param = printable(name)
            raise Refusal(400, f"there is no field {param}; leave it out", param=param)


def _flat(values: Mapping[str, object]) -> None:
    """Refuse what is nested before anybody looks at all of it."""
    for name, value in values.items():
        if isinstance(value, list) or (isinstance(value, dict) and (name != "voice" or set(value) != {"id"})):
            right = "a name or {'id': name}" if name == "voice" else "one value"
            raise Refusal(400, f"{name} is {_shown(value)}; it must be {right}", param=name)


def twice(name: str) -> Refusal:
    """A field is there twice."""
    param = printable(name)
    return Refusal(400, f"{param} is given twice; give it once", param=param)


def _refusal(error: ValidationError) -> Refusal:
    detail = error.errors(include_url=False, include_context=False)[0]
    param = printable(detail["loc"][0]) if detail["loc"] else "seed"
    return Refusal(400, _sentence(param, detail), param=param)


def _sentence(param: str, detail: ErrorDetails) -> str:
    message = detail["msg"].removeprefix("Value error, ").replace("Input should", "it must")
    return message if not detail["loc"] else f"{param} is {_shown(detail['input'])}; {message[:1].lower()}{message[1:]}"


def _shown(value: Any) -> str:
    """A value for a message: short, and in ASCII whatever it holds."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of many digits"
    text = ascii(value if not isinstance(value, str) else value[:64])
    return text if len(text) <= 64 else f"{text[:60]}..."


def printable(name: object) -> str:
    """A field's name as a client gives it, short and in ASCII whatever it holds."""
    return str(name)[:64].encode("ascii", "backslashreplace").decode()
