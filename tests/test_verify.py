"""The `verify` command: a table of promises, and an exit code that tells when one is broken."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from voxradix.cli import verify
from voxradix.errors import VoxradixError


def test_every_promise_holds_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.run_verify("cpu")
    out = capsys.readouterr().out
    assert "FAIL" not in out
    assert out.count("not run") == 1, "what needs a GPU says so"


def test_a_broken_promise_is_a_failed_row_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(rows: Tensor) -> Tensor:
        return torch.zeros_like(rows[:, 0])

    def reads(stop: Tensor, codes: Tensor, *_: object) -> Tensor:
        return codes + int(stop.any())

    for name, broken, failed in (
        ("row_hash", wrong, 1),
        ("ShortHash", lambda layout, device: wrong, 1),
        ("unpack_rows", lambda words, layout: words, 1),
        ("prompt_keys", wrong, 1),
        ("published_by_torch", reads, 1),
        ("RowPublisher", lambda *_, **__: reads, 2),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(verify, name, broken)
            assert not verify.run_verify("cpu")
        assert capsys.readouterr().out.count("FAIL") == failed, name


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(VoxradixError, match="must be cpu or cuda"):
        verify.run_verify("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(VoxradixError, match="finds no CUDA device"):
            verify.run_verify("cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_every_promise_holds_on_a_gpu() -> None:
    assert verify.run_verify("cuda")
