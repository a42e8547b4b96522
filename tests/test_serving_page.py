"""The page on serving is true: its commands and its code run against a server."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile

from tests.serving import Running, running
from voxradix.voice import load_voice

PAGE = (Path(__file__).parents[1] / "docs" / "serving.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(load_voice("numbers")) as started:
        yield started


def blocks(kind: str, server: Running) -> list[str]:
    found = re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.DOTALL)
    assert found
    return [block.replace(ADDRESS, server.url) for block in found]


def test_the_python_of_the_page_runs(server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python", server):
        exec(compile(block, "docs/serving.md", "exec"), names)
    sizes = names["sizes"]
    assert isinstance(sizes, list) and sum(sizes) > 24000 and Path("digits.wav").stat().st_size > 24000


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_lines_of_the_page_run(server: Running, tmp_path: Path) -> None:
    for block in blocks("sh", server):
        subprocess.run(["sh", "-e", "-c", block.replace("curl ", "curl -sS --fail ")], cwd=tmp_path, check=True)
    for name in ("digits.wav", "digits.mp3"):
        with soundfile.SoundFile(tmp_path / name) as file:
            assert file.samplerate == 24000 and file.read(12000).any()


def test_the_error_of_the_page_is_the_server_s(server: Running) -> None:
    assert server.speak(input="one", speed=2.0).text.replace(" ", "") in PAGE.replace(" ", "")


def test_the_page_names_every_field_and_route(server: Running) -> None:
    schema = server.client.get("/openapi.json").json()
    for field in schema["components"]["schemas"]["SpeechFields"]["properties"]:
        assert f"`{field}`" in PAGE
    for path in schema["paths"]:
        assert path.replace("{name}", "ID").removesuffix("/ID") in PAGE
