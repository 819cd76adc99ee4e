"""The table of members that settings read is what the classes declare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_is_up_to_date() -> None:
    """In a process of its own, because a plugin that another test has loaded is not to be in it."""
    code = "import write_members as w; assert w.PAGE.read_text(encoding='utf-8') == w.page()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "scripts", capture_output=True, text=True)
    assert done.returncode == 0, f"run python scripts/write_members.py\n{done.stderr}"


def test_names_and_formulas_are_shown_without_torch() -> None:
    code = "import sys; from translate.cli.zoo import command; command(); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "vᵀ tanh(W q + U m)" in done.stdout
