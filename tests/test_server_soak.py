"""The server under load for long: nothing leaks, and nobody hears another's audio.

VOXRADIX_SOAK_SECONDS=120 pytest -m slow tests/test_server_soak.py -s
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.serving import until
from voxradix import Engine, Take
from voxradix.audio import wav_bytes
from voxradix.cli.bench_serve import ServerProcess, ask, percentile, server_process
from voxradix.voice import load_voice

SECONDS = float(os.environ.get("VOXRADIX_SOAK_SECONDS", "600"))
CLIENTS = 64
TEXTS = [
    "one",
    "four eight one five",
    "nine two three six six seven one",
    "three thousand and twelve, and forty seven.",
    "one two three four five six seven eight nine zero. eight eight one.",
]
MORE = "six two"
MOST = 120
"""Frames of a take: fewer than the pool has rows, and for all takes together far more."""
Key = tuple[int, int, bool]
"""A text, a seed, and whether another text follows."""


@dataclass
class Log:
    """What all clients have seen."""

    digests: defaultdict[Key, set[str]] = field(default_factory=lambda: defaultdict(set))
    firsts: list[float] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Footprint:
    """What a process holds."""

    memory: int
    threads: int
    files: int

    @classmethod
    def of(cls, pid: int) -> Footprint:
        status = Path(f"/proc/{pid}/status").read_text()
        values = dict(line.split(":", 1) for line in status.splitlines())
        return cls(
            memory=int(values["VmRSS"].split()[0]) * 1024,
            threads=int(values["Threads"]),
            files=len(os.listdir(f"/proc/{pid}/fd")),
        )


def client(server: ServerProcess, number: int, end: float, log: Log) -> None:
    chance = random.Random(number)
    connection = server.connect()
    try:
        while time.monotonic() < end:
            text, seed = chance.randrange(len(TEXTS)), chance.randrange(8)
            if chance.random() < 0.1:
                ask(connection, hang_up=True, input=TEXTS[text], seed=seed, max_frames=MOST)
                connection = server.connect()
                log.done["hung up"] += 1
                continue
            heard = ask(connection, input=TEXTS[text], seed=seed, max_frames=MOST)
            log.firsts.append(heard.first)
            log.digests[text, seed, False].add(hashlib.sha256(heard.audio).hexdigest())
            log.done["spoken"] += 1
            if chance.random() < 0.1:
                heard = ask(connection, input=MORE, take=heard.take, seed=seed, max_frames=MOST)
                log.firsts.append(heard.first)
                log.digests[text, seed, True].add(hashlib.sha256(heard.audio).hexdigest())
                log.done["continued"] += 1
    except Exception as error:
        log.errors.append(f"client {number}: {type(error).__name__}: {error}")
    finally:
        connection.close()


def quiet(engine: Engine, key: Key) -> str:
    text, seed, more = key
    take: Take = engine.speak(TEXTS[text], seed=seed, max_frames=MOST)
    if more:
        take = engine.speak(MORE, after=take, seed=seed, max_frames=MOST)
    audio = wav_bytes(engine.voice.codec.decode(take.codes), engine.voice.codec.sample_rate)[44:]
    return hashlib.sha256(audio).hexdigest()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="what a process holds is read in /proc")
def test_sixty_four_clients_for_long_leak_nothing_and_hear_what_a_quiet_run_says() -> None:
    log = Log()
    with server_process("--max-rows", "250", "--max-takes", "300", "--queue", str(CLIENTS)) as server:
        began = time.monotonic()
        threads = [
            threading.Thread(target=client, args=(server, number, began + SECONDS, log)) for number in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS * 0.4)
        early = Footprint.of(server.pid)
        time.sleep(SECONDS * 0.5)
        late = Footprint.of(server.pid)
        for thread in threads:
            thread.join()
        until(lambda: server.get("/v1/stats")["running"] == 0)
        assert not log.errors
        stats = server.get("/v1/stats")
        until(lambda: Footprint.of(server.pid).files <= 20)
        after = Footprint.of(server.pid)
    print(
        f"\n{SECONDS:g} s, {CLIENTS} clients: {dict(log.done)}, {stats['retractions']} retractions, "
        f"first audio p50 {percentile(log.firsts, 50):.3f} s, p99 {percentile(log.firsts, 99):.3f} s, "
        f"memory {early.memory >> 20} -> {late.memory >> 20} MiB, threads {early.threads} -> {late.threads}, "
        f"files {early.files} -> {late.files} -> {after.files}"
    )
    assert min(log.done[kind] for kind in ("spoken", "continued", "hung up")) > 0
    assert stats["retractions"] > 0, "the pool was small enough to retract"
    rows = stats["rows"]
    assert stats["waiting"] == rows["held"] == 0 and rows["free"] + rows["cached"] == rows["pool"]
    assert late.memory - early.memory < 40 << 20
    assert late.threads == early.threads and late.files <= early.files + 8
    engine = Engine(load_voice("numbers"))
    wrong = [key for key, digests in log.digests.items() if digests != {quiet(engine, key)}]
    assert not wrong, f"other audio than a quiet run's for {wrong}"
