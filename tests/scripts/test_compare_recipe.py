"""The comparison of a recipe's ingredients: what is trained, what is reused, and what the page shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from translate.config import load_config

ROOT = Path(__file__).resolve().parents[2]

import compare_recipe as script  # noqa: E402

ROW = script.Row(["a"], 30.04, 55.5, 1900, 1700.4, 2, "abc1234", "a machine", "2026-01-02")


def comparison(tmp_path: Path, config: Path | None = None, folder: Path | None = None) -> script.Comparison:
    recipe = config or ROOT / "configs" / "multi30k-en-de.toml"
    return script.Comparison(recipe, folder or tmp_path, 0.02, 1, tmp_path / "work", tmp_path / "docs")


def test_every_member_differs_from_the_recipe(tmp_path: Path) -> None:
    some = comparison(tmp_path)
    configs = {name: load_config(some.config, some.settings_of(name)) for name in script.MEMBERS}
    assert all(config != configs[script.RECIPE] for name, config in configs.items() if name != script.RECIPE)
    assert set(script.CURVES) <= set(script.MEMBERS)


def test_the_table_stands_between_what_people_wrote(tmp_path: Path) -> None:
    some = comparison(tmp_path)
    some.output.mkdir()
    some.page.write_text(f"before\n{script.BEGIN}\nold\n{script.END}\nafter\n")
    worse = replace(ROW, bleu=28.0, updates=1000)
    some._write({script.RECIPE: ROW, "no-dropout": worse, "plain": script.Failure("a | b")})
    text = some.page.read_text()
    assert text.startswith(f"before\n{script.BEGIN}\n`multi30k-en-de.toml`")
    assert text.endswith(f"|\n{script.END}\nafter\n")
    assert "| the recipe | 30.0 |  | 55.5 | 1,900 | 1,700 |" in text
    assert "| no dropout | 28.0 | -2.0 | 55.5 | 1,000 | 1,700 |" in text
    assert "failed: a \\| b" in text
    assert "old" not in text
    some.page.write_text(f"{script.END}\n{script.BEGIN}\n")
    with pytest.raises(script.UserError, match="once each, in this order"):
        some.go([])


@pytest.mark.slow
def test_a_member_is_trained_once(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(script.MEMBERS, script.RECIPE, ("the recipe", ("train.steps=4",)))
    some = comparison(tmp_path, project, project.parent / "data")
    assert some.go([script.RECIPE]) == 0
    assert "| the recipe | " in some.page.read_text()
    said = capsys.readouterr().out
    assert "0 of 1 members are known, 1 to train." in said
    log = (some.work / "recipe.log").read_bytes()
    assert some.go([script.RECIPE]) == 0
    assert "1 of 1 members are known, 0 to train." in capsys.readouterr().out
    assert (some.work / "recipe.log").read_bytes() == log
    monkeypatch.setitem(script.MEMBERS, script.RECIPE, ("the recipe", ("train.steps=5",)))
    with pytest.raises(script.UserError, match="made with other settings"):
        some.go([script.RECIPE])
