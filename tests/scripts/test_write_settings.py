"""The list of settings in docs/ is what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from translate.cli.data import RULES
from translate.text.clean import FAULTS

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "write_settings.py"


def test_the_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("write_settings", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run python scripts/write_settings.py"


def test_the_help_names_every_rule() -> None:
    assert f"They are: {', '.join(fault.replace(' ', '-') for fault in FAULTS)}." == RULES
