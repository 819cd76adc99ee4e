"""The benchmark of layouts runs and tells of every matrix."""

from __future__ import annotations

import sys

import bench_products as script
import pytest
import torch


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_it_tells_of_every_matrix(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(script, "MATRICES", ((32, 16), (48, 24)))
    monkeypatch.setattr(script, "SECONDS", 0.0001)
    monkeypatch.setattr(script, "tune_process", lambda: None)
    monkeypatch.setattr(sys, "argv", ["x", "--rows", "1", "5", "--rounds", "1"])
    try:
        script.main()
    finally:
        torch.set_num_threads(threads)
    _, names, *lines = capsys.readouterr().out.splitlines()
    assert names.split()[:2] == ["rows", "matrix"]
    assert [line.split()[:4] for line in lines] == [
        [rows, outputs, "×", width] for rows in ("1", "5") for outputs, width in (("32", "16"), ("48", "24"))
    ]
