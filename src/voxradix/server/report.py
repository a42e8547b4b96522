"""Reports: what a server says of its voice, its cache and its work."""

from __future__ import annotations

from time import monotonic

from voxradix.audio import MossCodec
from voxradix.cache import Run
from voxradix.server.house import House

_MOST_NODES = 1000


def voice_list(house: House) -> dict[str, object]:
    """The voices there are, each with its sound, its limits and how it is drawn unless a request says otherwise."""
    voice, codec = house.desk.voice, house.decoder.codec
    sampling = voice.sampling
    about = {
        "id": voice.name,
        "object": "voice",
        "trained_for": voice.trained_for,
        **house.sound,
        "frame_rate": voice.frame_rate,
        "samples_per_frame": codec.samples_per_frame,
        "codebooks": codec.codebooks,
        "codebook_size": voice.model.config.codebook_size,
        "max_frames": voice.max_frames,
        "max_input_chars": house.settings.max_input_chars,
        "formats": list(house.containers),
        "sampling": {
            "temperature": sampling.codes.temperature,
            "top_p": sampling.codes.top_p,
            "top_k": sampling.codes.top_k,
            "repetition_penalty": sampling.repetition_penalty,
            "stop_temperature": sampling.stop.temperature,
            "stop_top_p": sampling.stop.top_p,
            "stop_top_k": sampling.stop.top_k,
        },
        "accepts": {
            "language": voice.takes("language"),
            "instructions": voice.takes("instruction"),
            "reference": voice.takes("references") and isinstance(codec, MossCodec),
        },
    }
    return {"object": "list", "data": [about]}


async def node_list(house: House, salt: str) -> dict[str, object]:
    """The nodes of the cache that hold rows of one salt, parents first."""
    runs = await house.desk.ask(lambda engine: engine.cached(salt, limit=_MOST_NODES + 1))
    shown = runs[:_MOST_NODES]
    return {
        "nodes": [_node(run) for run in shown],
        "truncated": len(runs) > len(shown),
        "rows": sum(run.rows for run in shown),
    }


def _node(run: Run) -> dict[str, object]:
    kind = "mixed"
    if run.given in (0, run.rows):
        kind = "prompt" if run.given else "generated"
    return {
        "id": run.id,
        "parent": run.parent,
        "depth": run.depth,
        "rows": run.rows,
        "prompt_rows": run.given,
        "kind": kind,
        "in_use": run.in_use,
        "pinned": run.pinned,
        "hit": run.hit,
    }


def stats(house: House, salt: str) -> dict[str, object]:
    """What the server is busy with, for all together, and what it has made for the caller."""
    now, measures = house.desk.snapshot, house.measures
    rows, sums = now.occupancy, house.shelf.sums(salt)
    return {
        "status": house.status,
        "waiting": now.waiting,
        "running": now.running,
        "max_batch": house.settings.max_batch,
        "queue": house.settings.queue,
        "requests": sums.requests,
        "refused": measures.refused_count,
        "retractions": sums.retractions,
        "rows": {
            "free": rows.free,
            "cached": rows.cached,
            "held": rows.held,
            "pool": rows.free + rows.cached + rows.held,
        },
        "prompt_rows": sums.prompt_rows,
        "reused_prompt_rows": sums.reused_prompt_rows,
        "reused_generated_rows": sums.reused_generated_rows,
        "recomputed_rows": sums.recomputed_rows,
        "frames": sums.frames,
        "takes": len(house.shelf),
        "first_frame_ms": measures.first_frame_ms(),
        "frame_ms": measures.frame_ms(),
        "uptime_seconds": round(monotonic() - measures.started, 1),
    }
