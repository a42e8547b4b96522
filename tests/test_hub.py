"""Repositories fetched from a hub: only what is needed, once, and with errors that say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub import Hub, serving
from voxradix.errors import VoxradixError
from voxradix.hub import CODEC_FILES, MODEL_FILES, fetch, is_hub_name

NAME = "some-owner/some.voice"
NEEDED = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
}
OTHERS = {"README.md", "modeling.py", "pytorch_model.bin", "original/model.safetensors", "vocab.json"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving({NAME: {path: path.encode() for path in NEEDED | OTHERS}}) as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
            hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        yield hub


def held(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_only_the_files_that_are_needed_come(hub: Hub) -> None:
    directory = fetch(NAME, MODEL_FILES)
    assert held(directory) == set(hub.fetched) == NEEDED
    assert (directory / "config.json").read_bytes() == b"config.json"


def test_a_codec_comes_with_its_code(hub: Hub) -> None:
    weights = {name for name in NEEDED if "safetensors" in name}
    assert held(fetch(NAME, CODEC_FILES)) == weights | {"config.json", "modeling.py"}


def test_the_revision_is_the_one_asked_for(hub: Hub) -> None:
    assert fetch(NAME, MODEL_FILES, revision="v2").name == hub.revisions["v2"]
    assert fetch(NAME, MODEL_FILES).name == hub.revisions["main"]
    assert hub.asked == ["v2", "main"]


def test_what_is_cached_needs_no_network(hub: Hub) -> None:
    first = fetch(NAME, MODEL_FILES)
    hub.asked.clear()
    hub.fetched.clear()
    assert fetch(NAME, MODEL_FILES, offline=True) == first
    assert not hub.asked and not hub.fetched
    assert fetch(NAME, MODEL_FILES) == first
    assert not hub.fetched


def test_what_is_not_cached_is_told_offline(hub: Hub) -> None:
    with pytest.raises(VoxradixError, match=f"{NAME} is not whole in the cache .*without offline mode"):
        fetch(NAME, MODEL_FILES, offline=True)
    assert not hub.asked
    fetch(NAME, ("config.json",))
    with pytest.raises(VoxradixError, match="not whole in the cache"):
        fetch(NAME, MODEL_FILES, offline=True)


def test_an_unknown_repository_is_told(hub: Hub) -> None:
    with pytest.raises(VoxradixError, match=f"{hub.url} has no some-owner/other that may be read"):
        fetch("some-owner/other", MODEL_FILES)


def test_an_unknown_revision_is_told(hub: Hub) -> None:
    with pytest.raises(VoxradixError, match=f"{NAME} on {hub.url} has no revision 'v3'"):
        fetch(NAME, MODEL_FILES, revision="v3")


def test_a_gated_repository_is_told(hub: Hub) -> None:
    hub.refusals[NAME] = "GatedRepo"
    with pytest.raises(VoxradixError, match=f"{NAME} is gated .*accept its terms"):
        fetch(NAME, MODEL_FILES)


def test_a_missing_network_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(VoxradixError, match=r"http://127\.0\.0\.1:9 cannot be reached"):
        fetch(NAME, MODEL_FILES)


def test_a_cache_that_cannot_be_written_is_told(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(VoxradixError, match=f"{NAME} cannot be kept in the cache {tmp_path / 'cache'}"):
        fetch(NAME, MODEL_FILES)


FETCH = "from voxradix.hub import MODEL_FILES, fetch; print(fetch('some-owner/some.voice', MODEL_FILES))"


def test_the_clients_environment_variables_hold(tmp_path: Path) -> None:
    def run(**settings: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), **settings}
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
            environment.pop(name, None)
        return subprocess.run([sys.executable, "-c", FETCH], env=environment, capture_output=True, text=True)

    with serving({NAME: {path: path.encode() for path in NEEDED}}) as hub:
        online = run(HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="0")
        assert online.returncode == 0, online.stderr
        assert online.stdout.startswith(str(tmp_path / "home"))
        assert hub.asked == ["main"]
        assert run(HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1").stdout == online.stdout
        assert hub.asked == ["main"]
    assert run(HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="0").stdout == online.stdout


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("OpenMOSS-Team/MOSS-TTS-Local-Transformer-v1.5", True),
        ("a/b", True),
        ("numbers", False),
        ("./voices", False),
        ("../b", False),
        ("a/b/c", False),
        ("/a/b", False),
        ("a/b/", False),
        ("~/voice", False),
        ("a/-", False),
        ("", False),
    ],
)
def test_hub_names_are_told_by_their_shape(text: str, shape: bool) -> None:
    assert is_hub_name(text) == shape


def test_what_is_no_hub_name_is_told() -> None:
    with pytest.raises(VoxradixError, match="owner/name"):
        fetch("numbers", MODEL_FILES)
