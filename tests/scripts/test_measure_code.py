"""The measurements of the code, on a small tree whose every number is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

import measure_code as script  # noqa: E402

AUTOGRAD = """import torch
from torch import autograd
from torch.autograd import Function as Fn
from torch.autograd.function import once_differentiable
class Whole(torch.autograd.Function): pass
class Module(autograd.Function): pass
class Renamed(int, Fn): pass
class Function: pass
class Other(Function): pass
"""


def branches(name: str, count: int) -> str:
    """A function of complexity `count` and of `2 * count` lines."""
    return f"def {name}(x):\n" + "    if x:\n        pass\n" * (count - 1) + "    return\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "translate/__init__.py": "",
        "translate/short.py": "x = 1\n" * 400,
        "translate/long.py": "x = 1\n" * 401,
        "translate/models/layers.py": AUTOGRAD,
        "translate/kernels/gru.py": AUTOGRAD,
        "translate/cli/text.py": "class A:\n    def shortest(self):\n" + "        x = 1\n" * 59 + "    @property\n"
        "    async def longer(self):\n" + "        x = 1\n" * 60,
        "scripts/branches.py": branches("allowed", 12) + branches("tangled", 13).replace(":\n", ":  # noqa: C901\n", 1),
        "pyproject.toml": "[tool.ruff]\nexclude = ['scripts']\nforce-exclude = true\n",
    }
    for name, text in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def measured(checkout: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert script.main([str(checkout), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["commits"]
    return dict(found)


def test_what_is_counted(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(checkout, capsys)
    assert found["lines"] == {
        "translate/models": 9,
        "translate/kernels": 9,
        "translate": 9 + 9 + 400 + 401 + (2 + 59 + 2 + 60),
    }
    assert found["autograd"] == [
        "translate/models/layers.py:5 Whole",
        "translate/models/layers.py:6 Module",
        "translate/models/layers.py:7 Renamed",
    ]
    trees = found["trees"]
    assert isinstance(trees, dict)
    assert trees["translate"] == {
        "files": ["translate/long.py (401)"],
        "functions": ["translate/cli/text.py:63 longer (61)"],
        "complex": [],
    }
    assert trees["scripts"] == {
        "files": [],
        "functions": [],
        "complex": ["scripts/branches.py:25 `tangled` is too complex (13 > 12)"],
    }
    assert trees["tests"] == {"files": [], "functions": [], "complex": []}


def test_what_is_missing_has_no_lines(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "translate" / "kernels" / "gru.py").unlink()
    (checkout / "translate" / "kernels").rmdir()
    lines = measured(checkout, capsys)["lines"]
    assert isinstance(lines, dict)
    assert lines["translate/kernels"] == 0


def test_one_column_for_each_commit(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([str(checkout), str(checkout)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == [str(checkout)] * 2
    assert [row.split()[-2:] for row in rows[2:4]] == [["942", "942"], ["3", "3"]]
    assert not any("tangled" in row for row in rows)
    assert script.main([str(checkout), "--list"]) == 0
    assert "\n  scripts/branches.py:25 `tangled`" in capsys.readouterr().out


def test_the_working_tree_is_measured_where_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["commits"]
    assert found["commit"] == "working tree"
    assert found["lines"]["translate"] > found["lines"]["translate/models"] > 0


def test_what_is_no_commit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["no-such-revision"]) == 2
    assert "no-such-revision: neither a folder" in capsys.readouterr().err
