"""The comparison of the zoo: who is in it, what is reused, and what the page shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from translate.cli.zoo import zoo
from translate.config import dump_config, load_config
from translate.errors import UserError
from translate.figures.heatmap import save_heatmap
from translate.run.directory import Run

ROOT = Path(__file__).resolve().parents[2]

import compare_zoo as script  # noqa: E402
import comparing  # noqa: E402

STEPS = 30


def row_of(name: str, **changes: Any) -> script.Row:
    row = script.Row(
        settings=script.settings_of(name, STEPS),
        bleu=81.26,
        bleu_margin=1.32,
        bleu_long=70.04,
        bleu_long_margin=2.21,
        num_long=177,
        bleu_third=33.33,
        aer=0.12345,
        parameters=1_234_567,
        tokens_per_second=2345.6,
        minutes=1.26,
        signature="nrefs:1|tok:13a",
        commit="abc1234",
        machine="a machine",
        jobs=2,
        day="2026-01-02",
    )
    return replace(row, **changes)


def finish(work: Path, name: str) -> script.Row:
    """What a finished member leaves behind, as far as the script reads it."""
    row = row_of(name, aer=None) if name == "plain" else row_of(name)
    picture = script.picture_of(work / name)
    picture.parent.mkdir(parents=True)
    if row.aer is not None:
        save_heatmap(picture, np.eye(3, dtype=np.float32), ["a", "b", "</s>"], ["c", "d", "e"])
    (work / name / "zoo.json").write_text(json.dumps(asdict(row)))
    return row


def begin(path: Path, *overrides: str) -> None:
    """A run as `translate train` leaves it before its first checkpoint, as far as the script reads it."""
    (path / "checkpoints").mkdir(parents=True)
    (path / "config.toml").write_text(dump_config(load_config(script.CONFIG, overrides)), encoding="utf-8")
    assert Run(path).exists()


def lines_of(page: str, heading: str) -> list[str]:
    """The rows of the table under a heading."""
    section = page.split(f"### {heading}\n")[1].split("\n#")[0]
    return [line for line in section.split("\n") if line.startswith("| ")][1:]


# -- members ----------------------------------------------------------------------------------------------------------


def test_every_member_of_the_tables_is_compared() -> None:
    assert script.not_covered(script.MEMBERS, zoo()) == []


def test_what_is_not_compared_is_named() -> None:
    tables = {"model.attention.score": {"additive": 0, "dot": 0, "cosine": 0}, "model.decoder.kind": {"plain": 0}}
    assert script.not_covered({"a": (), "b": ("model.attention.score=dot",)}, tables) == [
        "model.attention.score=cosine",
        "model.decoder.kind=plain",
    ]
    # The score in the settings of `plain` is not in its network.
    members = {
        "a": (),
        "b": ("model.attention.score=dot",),
        "c": ("model.decoder.kind=plain", "model.attention.score=cosine"),
    }
    assert script.not_covered(members, tables) == ["model.attention.score=cosine"]


def test_a_gap_is_refused_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "zoo", lambda: {"model.decoder.kind": {"plain": 0, "transformer": 0}})
    assert script.main(["--work", str(tmp_path / "work"), "--output", str(tmp_path / "docs")]) == 2
    assert "model.decoder.kind=transformer" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_names_are_unique_over_the_groups() -> None:
    assert sum(map(len, script.GROUPS.values())) == len(script.MEMBERS)
    assert next(iter(script.MEMBERS)) == script.BASELINE
    assert script.MEMBERS[script.BASELINE] == ()


@pytest.mark.parametrize("name", script.MEMBERS)
def test_every_member_loads_and_differs_from_the_baseline_by_its_overrides_only(name: str) -> None:
    def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        pairs = {}
        for key, value in tree.items():
            pairs.update(flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
        return pairs

    baseline, member = (
        flat(load_config(script.CONFIG, script.settings_of(each, STEPS)).model_dump())
        for each in (script.BASELINE, name)
    )
    differing = {key for key in baseline if baseline[key] != member[key]}
    assert differing == {override.partition("=")[0] for override in script.MEMBERS[name]}


@pytest.mark.parametrize(("steps", "validations"), [(300, [100, 200]), (40, [14, 28]), (100, [34, 68]), (1, [])])
def test_three_validations_the_first_at_a_third(steps: int, validations: list[int]) -> None:
    train = load_config(script.CONFIG, script.schedule(steps)).train
    assert train.steps == steps
    assert train.warmup < steps
    assert [step for step in range(1, steps) if step % train.valid_every == 0] == validations
    assert train.valid_every == script.third_of(steps)


# -- starting again ---------------------------------------------------------------------------------------------------


def test_a_row_is_reused_only_if_its_settings_agree(tmp_path: Path) -> None:
    row = finish(tmp_path, "dot")
    assert script.read_row(tmp_path / "dot", script.settings_of("dot", STEPS)) == row
    assert script.read_row(tmp_path / "dot", script.settings_of("dot", STEPS + 1)) is None
    assert script.read_row(tmp_path / "dot", script.settings_of("general", STEPS)) is None
    script.picture_of(tmp_path / "dot").unlink()
    assert script.read_row(tmp_path / "dot", row.settings) is None
    assert script.read_row(tmp_path / "none", row.settings) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"bleu": 3}'])
def test_a_damaged_row_is_not_reused(tmp_path: Path, content: str) -> None:
    row = finish(tmp_path, "dot")
    (tmp_path / "dot" / "zoo.json").write_text(content)
    assert script.read_row(tmp_path / "dot", row.settings) is None


def test_a_run_is_gone_on_with_only_if_its_settings_agree(tmp_path: Path) -> None:
    settings = script.settings_of("dot", STEPS)
    assert not script.is_other_run(tmp_path / "dot", script.CONFIG, settings)
    begin(tmp_path / "dot", *settings)
    assert not script.is_other_run(tmp_path / "dot", script.CONFIG, settings)
    assert script.is_other_run(tmp_path / "dot", script.CONFIG, script.settings_of("dot", STEPS + 1))
    (tmp_path / "dot" / "config.toml").write_text("[model]\nsize = 3\n")
    assert script.is_other_run(tmp_path / "dot", script.CONFIG, settings)


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[str]]]:
    """Call the script with members that are finished at once, or fail; gives its exit code and who was trained."""
    monkeypatch.setattr(script, "zoo", lambda: {"model.decoder.kind": {"plain": 0}})

    def call(*arguments: str, failing: str = "", steps: int = STEPS) -> tuple[int, list[str]]:
        trained = []

        def make_row(name: str, steps: int, jobs: int, work: Path, commands: comparing.Commands) -> script.Row:
            trained.append(name)
            if name == failing:
                raise comparing.MemberFailed("no | room")
            return finish(work, name)

        monkeypatch.setattr(script, "make_row", make_row)
        places = ("--work", str(tmp_path / "work"), "--output", str(tmp_path / "docs"))
        code = script.main(["--steps", str(steps), "--jobs", "1", *places, "--only", *arguments])
        return code, trained

    return call


def test_a_second_call_trains_what_is_missing(tmp_path: Path, compare: Callable[..., tuple[int, list[str]]]) -> None:
    page = tmp_path / "docs" / "zoo.md"
    assert compare("dot", "plain") == (0, ["dot", "plain"])
    assert compare("dot", "general", "plain") == (0, ["general"])
    assert [line.split(" ")[1] for line in lines_of(page.read_text(), "Scores")] == [
        "[general](zoo/general.png)",
        "[dot](zoo/dot.png)",
    ]
    assert {path.name for path in (tmp_path / "docs" / "zoo").iterdir()} == {"dot.png", "general.png"}
    before = page.read_bytes()
    assert compare("dot") == (0, [])
    assert page.read_bytes() == before


def test_a_failure_is_a_row_and_is_tried_again(tmp_path: Path, compare: Callable[..., tuple[int, list[str]]]) -> None:
    page = tmp_path / "docs" / "zoo.md"
    assert compare("dot", "general", "plain", failing="general") == (1, ["dot", "general", "plain"])
    assert "| general | failed: no \\| room |" in lines_of(page.read_text(), "Scores")[0]
    assert len(lines_of(page.read_text(), "Decoders")) == 1
    assert compare("dot", "general", "plain") == (0, ["general"])
    assert "failed" not in page.read_text()


def test_runs_with_other_settings_are_named_and_kept(
    tmp_path: Path, compare: Callable[..., tuple[int, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    begin(tmp_path / "work" / "dot", *script.settings_of("dot", STEPS))
    assert compare("dot", "general", steps=STEPS + 1) == (2, [])
    assert f"rm -r {tmp_path / 'work' / 'dot'}\n" in capsys.readouterr().err
    assert Run(tmp_path / "work" / "dot").exists()


def test_an_unknown_member_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main(["--only", "dott"])
    assert "dott" in capsys.readouterr().err


# -- the page ---------------------------------------------------------------------------------------------------------


def test_rows_stand_in_their_groups_the_baseline_first() -> None:
    outcomes = {"plain": row_of("plain", aer=None), "dot": comparing.Failure("a <b>"), "bahdanau": row_of("bahdanau")}
    page = script.render(outcomes, "\n", STEPS, 2)
    groups = [line.removeprefix("### ") for line in page.split("\n") if line.startswith("### ")]
    assert groups == ["Baseline", "Decoders", "Scores"]
    assert lines_of(page, "Baseline") == [
        "| [bahdanau](zoo/bahdanau.png) | 81.3 ± 1.3 | 70.0 ± 2.2 | 33.3 | 0.123 | 1,234,567 | 2,346 | 1.3 | none |"
    ]
    assert lines_of(page, "Decoders") == [
        "| plain | 81.3 ± 1.3 | 70.0 ± 2.2 | 33.3 | — | 1,234,567 | 2,346 | 1.3 | `model.decoder.kind=plain` |"
    ]
    assert lines_of(page, "Scores") == ["| dot | failed: a &lt;b> |  |  |  |  |  |  | `model.attention.score=dot` |"]
    assert page.count("<img ") == 1  # neither plain nor what failed has a heat map
    assert "Not measured yet: gru, " in page


def test_every_line_of_a_table_has_its_columns() -> None:
    page = script.render({name: row_of(name) for name in script.MEMBERS}, "\n", STEPS, 2)
    tables = [line for line in page.split("\n") if line.startswith("|") and "changes" not in line]
    wide = [line for line in tables if line.count("|") != 3]  # the head's has two columns
    assert len(wide) == len(script.MEMBERS) + len(script.GROUPS)
    assert {line.count("|") for line in wide} == {len(script.COLUMNS) + 2}
    assert "Not measured yet" not in page
    assert page.count("<img ") == len(script.MEMBERS)


def test_rows_of_several_commits_are_not_passed_off_as_one() -> None:
    page = script.render({"dot": row_of("dot"), "plain": row_of("plain", commit="def5678")}, "\n", STEPS, 2)
    assert "| commit | abc1234; def5678 |" in page


def test_the_text_survives_a_new_page(tmp_path: Path) -> None:
    page = tmp_path / "zoo.md"
    text = "\nWhat disappointed:\n\n| a | b |\n|---|---|\n\n*Much.*\n"
    page.write_text(script.render({}, text, STEPS, 2), encoding="utf-8")
    assert script.preserved_text(page) == text
    page.write_text(script.render({"dot": row_of("dot")}, script.preserved_text(page), STEPS, 2), encoding="utf-8")
    assert script.preserved_text(page) == text
    assert script.preserved_text(tmp_path / "none.md") == script.NO_TEXT


@pytest.mark.parametrize("content", ["", "mine", f"{script.BEGIN}\nmine", f"mine {script.END}"])
def test_a_page_without_markers_is_not_overwritten(tmp_path: Path, content: str) -> None:
    page = tmp_path / "zoo.md"
    page.write_text(content)
    with pytest.raises(UserError, match="by hand"):
        script.preserved_text(page)


def test_a_heat_map_is_small_and_keeps_its_colours(tmp_path: Path) -> None:
    weights = np.random.default_rng(1).dirichlet(np.full(14, 0.1), 13).astype(np.float32)
    save_heatmap(tmp_path / "drawn.png", weights, [f"source{i}" for i in range(14)], [f"target{i}" for i in range(13)])
    script.publish_heatmap(tmp_path / "drawn.png", tmp_path / "zoo" / "small.png")
    assert (tmp_path / "zoo" / "small.png").stat().st_size < 40_000
    with Image.open(tmp_path / "drawn.png") as drawn, Image.open(tmp_path / "zoo" / "small.png") as small:
        assert small.width == script.PICTURE_WIDTH
        wanted = np.asarray(drawn.convert("RGB").resize(small.size, Image.Resampling.LANCZOS), dtype=int)
        assert abs(wanted - np.asarray(small.convert("RGB"), dtype=int)).max() < 16


def test_the_sentence_is_worth_drawing() -> None:
    english, french = script._line_of_test("en").split(" "), script._line_of_test("fr").split(" ")
    assert 8 <= len(english) <= 14
    assert "not" in english
    assert "pas" in french
    links = (script.TEST / "test.align").read_text().split("\n")[script.SENTENCE - 1].split(" ")
    sure = [tuple(map(int, link.split("-"))) for link in links if "-" in link]
    crossing = sum(a < c and b > d for a, b in sure for c, d in sure)
    assert crossing >= 4


# -- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("update 1\nError: a.toml: no such file.\nGive another.\n", "a.toml: no such file."),
        ("Traceback (most recent call last):\n  File\nKeyError: 'local_p'\n", "KeyError: 'local_p'"),
        ("\n", ""),
    ],
)
def test_the_reason_of_a_failure(said: str, word: str) -> None:
    assert comparing.last_word(said) == word


def test_metrics(tmp_path: Path) -> None:
    records = [
        {"kind": "train", "step": 5, "tokens_per_second": 100.0},
        {"kind": "train", "step": 10, "tokens_per_second": 300.0},
        {"kind": "valid", "step": 10, "bleu": 7.5},
        {"kind": "valid", "step": 20, "bleu": 9.5},
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert script.read_metrics(path, third=10) == (200.0, 7.5)
    assert script.read_metrics(path, third=11) == (200.0, None)


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    log = tmp_path / "member.log"
    with pytest.raises(comparing.MemberFailed, match=r"^none: no such run\."):
        comparing.Commands().run(log, "info", "none")
    assert log.read_text().startswith("$ translate info none\nError: none: no such run.")


def test_nothing_starts_after_a_stop(tmp_path: Path) -> None:
    commands = comparing.Commands()
    commands.stop()
    with pytest.raises(comparing.MemberFailed, match="stopped"):
        commands.run(tmp_path / "member.log", "info", "none")


@pytest.mark.slow
def test_a_run_is_measured_by_the_real_commands(own_run: Path, tmp_path: Path) -> None:
    measured = script.measure(own_run, tmp_path / "run.log", 10, comparing.Commands())
    row = row_of("dot", **measured)
    assert 0 <= row.bleu <= 100
    assert row.num_long == 177
    assert row.bleu_third is not None
    assert row.aer is not None
    assert 0 < row.aer < 1
    assert row.parameters == Run(own_run).load_model().num_parameters
    assert row.tokens_per_second > 0
    assert script.picture_of(own_run).is_file()
