"""Checkpoints and codecs from a Hugging Face hub, kept in its cache.

The client's environment variables hold here too: HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE, HF_TOKEN.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from voxradix.errors import VoxradixError

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
MODEL_FILES = ("config.json", "generation_config.json", "voice.json", "tokenizer.json", *_WEIGHTS)
"""What of a repository a voice is loaded from (`voxradix.voice`)."""
CODEC_FILES = ("config.json", "*.py", *_WEIGHTS)
"""What of a repository a codec with code of its own is loaded from (`voxradix.audio.load_moss_codec`)."""

_NAME = re.compile(r"\w(?:[\w.-]*\w)?/\w(?:[\w.-]*\w)?", re.ASCII)


def is_hub_name(text: str) -> bool:
    """Whether a text has the shape ``owner/name``. So have some paths; a directory of that name comes first."""
    return _NAME.fullmatch(text) is not None


def fetch(name: str, patterns: Sequence[str], *, revision: str | None = None, offline: bool = False) -> Path:
    """The directory of a hub repository's files, downloaded where the cache lacks them.

    Args:
        name: The repository, ``owner/name``.
        patterns: Which files of its top folder are needed, as `MODEL_FILES` and `CODEC_FILES`; no others come.
        revision: A branch, tag or commit; the main branch without one.
        offline: Ask nothing of the network and take what the cache has.

    A repository that is cached whole is also taken when the hub cannot be reached. Raises `VoxradixError` when there
    is no such repository or revision, when it may not be read, and when it is neither cached nor to be had.
    """
    if not is_hub_name(name):
        raise VoxradixError(f"{name!r} is no name on a hub; such a name is owner/name")
    # here, as it takes long to import and most commands need no hub
    from huggingface_hub import constants, errors, snapshot_download

    hub, cache = constants.ENDPOINT, constants.HF_HUB_CACHE
    named = name if revision is None else f"{name} at revision {revision!r}"
    try:
        return Path(
            snapshot_download(
                name,
                revision=revision,
                local_files_only=offline,
                allow_patterns=list(patterns),
                ignore_patterns=["*/*"],
                library_name="voxradix",
            )
        )
    except errors.GatedRepoError:
        told = f"{name} is gated on {hub}; accept its terms on its page, then log in (hf auth login, or HF_TOKEN)"
    except errors.RepositoryNotFoundError:
        told = f"{hub} has no {name} that may be read; check the name or, if it is private, log in (hf auth login)"
    except errors.RevisionNotFoundError:
        told = f"{name} on {hub} has no revision {revision!r}; name one of its branches, tags or commits"
    except errors.LocalEntryNotFoundError:
        if offline or constants.HF_HUB_OFFLINE:
            told = f"{named} is not whole in the cache {cache}, and fetching is off; fetch it once without offline mode"
        else:
            told = f"{hub} cannot be reached and {named} is not whole in the cache {cache}; try again with a network"
    except errors.HfHubHTTPError as error:
        told = f"{hub} refused {named}: {_first_line(error)}"
    except OSError as error:
        told = f"{named} cannot be kept in the cache {cache}: {error.strerror or _first_line(error)}"
    except Exception as error:  # the client's transport errors have no base that it names
        told = f"{named} could not be fetched from {hub}: {_first_line(error)}"
    raise VoxradixError(told)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
