"""A user's mistake is one message on stderr that names the culprit, exit code 2, no traceback, and nothing written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Refused = Callable[..., None]


@pytest.fixture
def check_refused(command_line: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Refused:
    """Call the command line in an empty folder, where it must refuse and say these things."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def call(*arguments: str | Path, says: tuple[str, ...]) -> None:
        answer = command_line(*arguments)
        assert answer.code == 2, answer.err
        assert answer.out == ""
        assert "Traceback" not in answer.err
        for part in says:
            assert part in answer.err

    return call


def edit(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change a file line by line."""
    path.write_bytes(b"".join(line + b"\n" for line in change(path.read_bytes().split(b"\n")[:-1])))


# -- train ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.attention.scroe=dot", ("command line", "model.attention.scroe", "unknown setting", "'score'")),
        ("model.attention.score=dott", ("model.attention.score", "'dott'", "Did you mean 'dot'?")),
        ("train.steps=many", ("train.steps", "'many'")),
        ("train.stepps=3", ("train.stepps", "'steps'")),
        ("nosuch.thing=3", ("nosuch", "unknown setting")),
        ("train.steps", ("'train.steps'", "key=value")),
        ("data.source_lang=de", ("train.de", "found", "train.en")),
        ("data.train=trian", ("data.train = 'trian'", "trian.en", "'train.en'")),
        ("data.test=none", ("data.test = 'none'",)),
        ("train.device=cuda", ("train.device = 'cuda'", "this machine has none", "cpu")),
        ("train.init_from=nowhere", ("nowhere", "no such run")),
        ("data.max_length=1", ("200 pairs read, 0 kept", "longer than 1 pieces", "at least 2 pairs")),
    ],
)
def test_train_refuses_a_setting(check_refused: Refused, project: Path, override: str, says: tuple[str, ...]) -> None:
    import torch

    if override.endswith("cuda") and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    check_refused("train", project, override, says=says)
    # Nothing that a second, correct try would stumble over.
    assert not Path("runs/tiny/config.toml").exists()
    assert not Path("runs/tiny/checkpoints").exists()


def test_train_names_the_file_of_an_unknown_setting(check_refused: Refused, project: Path) -> None:
    project.write_text(project.read_text() + "\n[trian]\nsteps = 3\n")
    check_refused("train", project, says=(f"{project}: trian: unknown setting", "'train'"))


def test_train_without_its_configuration(check_refused: Refused) -> None:
    check_refused("train", "nowhere.toml", says=("nowhere.toml: no such file", "translate init"))


def test_train_with_a_folder_for_a_configuration(check_refused: Refused, project: Path) -> None:
    check_refused("train", project.parent, says=(f"{project.parent} is a folder",))


def test_train_with_broken_toml(check_refused: Refused, project: Path) -> None:
    project.write_text("[data\n")
    check_refused("train", project, says=(f"{project}: not valid TOML", "line 1"))


def test_train_without_its_data_folder(check_refused: Refused, project: Path) -> None:
    (project.parent / "data").rename(project.parent / "elsewhere")
    check_refused("train", project, says=(f"data.folder: {project.parent / 'data'}: no such folder",))


def test_train_without_one_of_its_files(check_refused: Refused, project: Path) -> None:
    (project.parent / "data" / "valid.fr").unlink()
    check_refused("train", project, says=("data.valid = 'valid'", "valid.fr"))


@pytest.mark.parametrize(("split", "count"), [("train", 200), ("valid", 14), ("test", 12)])
def test_train_on_unequal_sides(check_refused: Refused, project: Path, split: str, count: int) -> None:
    edit(project.parent / "data" / f"{split}.fr", lambda lines: lines[:-1])
    check_refused("train", project, says=(f"{split}.en has {count} lines", f"{split}.fr {count - 1}"))
    assert not Path("runs/tiny/config.toml").exists()


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_train_on_empty_files(check_refused: Refused, project: Path, split: str) -> None:
    for ending in ("en", "fr"):
        (project.parent / "data" / f"{split}.{ending}").write_bytes(b"")
    check_refused("train", project, says=(f"{split}.en", "no pairs"))
    assert not Path("runs/tiny/config.toml").exists()


def test_train_on_one_pair(check_refused: Refused, project: Path) -> None:
    for ending in ("en", "fr"):
        edit(project.parent / "data" / f"train.{ending}", lambda lines: lines[:1])
    check_refused("train", project, says=("train.en", "1 pair read, 1 kept", "at least 2 pairs"))


def test_train_on_blank_lines_only(check_refused: Refused, project: Path) -> None:
    for ending in ("en", "fr"):
        edit(project.parent / "data" / f"train.{ending}", lambda lines: [b" "] * len(lines))
    check_refused("train", project, says=("tokenizer has nothing to learn from",))


def test_train_with_one_side_empty_everywhere(check_refused: Refused, project: Path) -> None:
    edit(project.parent / "data" / "train.fr", lambda lines: [b""] * len(lines))
    check_refused("train", project, says=("200 pairs read, 0 kept", "200 with an empty side", "at least 2 pairs"))


def test_train_with_no_valid_pair_left_can_be_mended_and_repeated(check_refused: Refused, project: Path) -> None:
    edit(project.parent / "data" / "valid.fr", lambda lines: [b""] * len(lines))
    for _ in range(2):  # the second try meets the same mistake, not a half-made run
        check_refused("train", project, says=("data.valid = 'valid'", "14 pairs read, 0 kept"))


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_train_on_invalid_utf8(check_refused: Refused, project: Path, split: str) -> None:
    file = project.parent / "data" / f"{split}.fr"
    edit(file, lambda lines: [*lines[:6], b"caf\xe9", *lines[7:]])
    check_refused("train", project, says=(f"{file}:7: not valid UTF-8", "0xe9", "column 4"))
    assert not Path("runs/tiny/config.toml").exists()


def test_train_into_a_finished_run(check_refused: Refused, project: Path, tiny_run: Path) -> None:
    before = sorted(path.name for path in tiny_run.iterdir())
    check_refused("train", project, "--run", tiny_run, says=(f"{tiny_run} holds a run already", "--resume", "--run"))
    assert sorted(path.name for path in tiny_run.iterdir()) == before


def test_train_into_a_folder_of_something_else(check_refused: Refused, project: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"")
    check_refused("train", project, "--run", tmp_path / "photos", says=("photos holds files but is not a run",))


def test_train_into_a_file(check_refused: Refused, project: Path) -> None:
    check_refused("train", project, "--run", project, says=(f"{project}: cannot hold a run",))


# -- commands on a run ------------------------------------------------------------------------------------------------

ON_RUNS = {
    "evaluate": (),
    "text": (),
    "interactive": (),
    "info": (),
    "align": ("--source", os.devnull),
    "head": ("--reverse", "elsewhere"),
}


@pytest.mark.parametrize("command", ON_RUNS)
def test_missing_run(check_refused: Refused, command: str) -> None:
    check_refused(command, "nowhere", *ON_RUNS[command], says=("nowhere: no such run", "translate train"))


@pytest.mark.parametrize("command", ON_RUNS)
def test_folder_that_is_no_run(check_refused: Refused, command: str, project: Path) -> None:
    check_refused(command, project.parent, *ON_RUNS[command], says=(f"{project.parent} is not a run",))


@pytest.mark.parametrize("command", ["evaluate", "text", "align"])
def test_unknown_device(check_refused: Refused, command: str, tiny_run: Path) -> None:
    check_refused(command, tiny_run, *ON_RUNS[command], "--device", "tpu", says=("--device tpu", "cpu"))


def test_run_without_its_tokenizer(check_refused: Refused, own_run: Path) -> None:
    (own_run / "tokenizer.source.model").write_bytes(b"nonsense")
    check_refused("text", own_run, says=("tokenizer.source.model", "cannot be read as a tokenizer"))


def test_run_of_another_release(check_refused: Refused, own_run: Path) -> None:
    config = own_run / "config.toml"
    config.write_text(config.read_text().replace("[train]", "[train]\nlookahead = 3"))
    check_refused("info", own_run, says=(f"{config}: train.lookahead: unknown setting", "CHANGELOG.md"))


def test_evaluate_needs_both_files(check_refused: Refused, tiny_run: Path, project: Path) -> None:
    file = project.parent / "data" / "test.en"
    for option in ("--source", "--reference"):
        check_refused("evaluate", tiny_run, option, file, says=("--source and --reference go together",))


def test_evaluate_on_unequal_sides(check_refused: Refused, tiny_run: Path, project: Path) -> None:
    data = project.parent / "data"
    edit(data / "test.fr", lambda lines: lines[:-1])
    files = ("--source", data / "test.en", "--reference", data / "test.fr")
    check_refused("evaluate", tiny_run, *files, says=("test.en has 12 lines", "test.fr 11"))


def test_evaluate_on_nothing(check_refused: Refused, tiny_run: Path) -> None:
    files = ("--source", os.devnull, "--reference", os.devnull)
    check_refused("evaluate", tiny_run, *files, says=(os.devnull, "nothing to score"))


def test_evaluate_on_a_missing_file(check_refused: Refused, tiny_run: Path) -> None:
    check_refused("evaluate", tiny_run, "--source", "no.en", "--reference", "no.fr", says=("no.en: no such file",))


def test_evaluate_on_an_unknown_split(check_refused: Refused, tiny_run: Path) -> None:
    check_refused("evaluate", tiny_run, "--split", "dev", says=("no 'dev' data", "test, valid"))


def test_text_on_a_missing_file(check_refused: Refused, tiny_run: Path) -> None:
    check_refused("text", tiny_run, "no.en", says=("no.en: no such file",))


def test_text_on_a_folder(check_refused: Refused, tiny_run: Path) -> None:
    check_refused("text", tiny_run, ".", says=(".: cannot be read: Is a directory",))


@pytest.mark.parametrize("lines", ["0", "0-3", "5-2", "a-b", "2-x", "-3", "1-2-3", "13", "13-20"])
def test_align_refuses_lines(check_refused: Refused, tiny_run: Path, lines: str) -> None:
    source = tiny_run / "data" / "test.source"
    check_refused("align", tiny_run, "--source", source, f"--lines={lines}", says=(f"--lines {lines}",))


def test_align_needs_a_target_for_gold(check_refused: Refused, tiny_run: Path, project: Path) -> None:
    data = project.parent / "data"
    gold = ("--gold", data / "test.align")
    check_refused("align", tiny_run, "--source", data / "test.en", *gold, says=("--gold needs --target",))


def test_align_on_gold_of_other_length(check_refused: Refused, tiny_run: Path, project: Path) -> None:
    data = project.parent / "data"
    edit(data / "test.align", lambda lines: lines[:-1])
    files = ("--source", data / "test.en", "--target", data / "test.fr", "--gold", data / "test.align")
    check_refused("align", tiny_run, *files, says=("test.align has 11 lines of gold", "the source 12"))


def test_align_on_broken_gold(check_refused: Refused, tiny_run: Path, project: Path) -> None:
    data = project.parent / "data"
    edit(data / "test.align", lambda lines: [*lines[:4], b"0-0 1:1", *lines[5:]])
    files = ("--source", data / "test.en", "--target", data / "test.fr", "--gold", data / "test.align")
    check_refused("align", tiny_run, *files, says=("test.align:5", "'1:1' is not a link"))


def test_align_on_unequal_sides(check_refused: Refused, tiny_run: Path, project: Path) -> None:
    data = project.parent / "data"
    edit(data / "test.fr", lambda lines: lines[:-1])
    files = ("--source", data / "test.en", "--target", data / "test.fr")
    check_refused("align", tiny_run, *files, says=("test.en has 12 lines", "test.fr 11"))


def test_align_with_both_sides_from_stdin(check_refused: Refused, tiny_run: Path) -> None:
    check_refused(
        "align", tiny_run, "--source", "-", "--target", "-", says=("Only one of --source, --target and --gold",)
    )


def test_align_json_needs_gold(check_refused: Refused, tiny_run: Path) -> None:
    check_refused("align", tiny_run, "--source", os.devnull, "--json", says=("--json", "--gold", "--format json"))


def test_align_pictures_need_a_folder(check_refused: Refused, tiny_run: Path, project: Path) -> None:
    options = ("--source", tiny_run / "data" / "test.source", "--format", "png", "--output")
    check_refused("align", tiny_run, *options, "-", says=("--output -: pictures need a folder",))
    check_refused("align", tiny_run, *options, project, says=(f"--output {project}",))


def test_align_output_that_cannot_be_written(check_refused: Refused, tiny_run: Path) -> None:
    options = ("--source", tiny_run / "data" / "test.source", "--output", "no/such/folder/links")
    check_refused("align", tiny_run, *options, says=("--output no/such/folder/links", "No such file or directory"))


# -- init -------------------------------------------------------------------------------------------------------------


def sides(project: Path, count: int) -> tuple[str | Path, ...]:
    """Two files of the first training lines, as arguments of init."""
    for ending in ("en", "fr"):
        edit(project.parent / "data" / f"train.{ending}", lambda lines: lines[:count])
    return "--source", project.parent / "data" / "train.en", "--target", project.parent / "data" / "train.fr"


def test_init_on_too_few_lines(check_refused: Refused, project: Path) -> None:
    check_refused("init", "mine", *sides(project, 99), says=("train.en", "train.fr", "99 lines", "at least 100"))
    assert os.listdir() == []


def test_init_on_unequal_sides(check_refused: Refused, project: Path) -> None:
    files = sides(project, 120)
    edit(project.parent / "data" / "train.fr", lambda lines: lines[:-1])
    check_refused("init", "mine", *files, says=("train.en has 120 lines", "train.fr 119"))
    assert os.listdir() == []


def test_init_on_invalid_utf8(check_refused: Refused, project: Path) -> None:
    files = sides(project, 120)
    edit(project.parent / "data" / "train.fr", lambda lines: [*lines[:-1], b"caf\xe9"])
    check_refused("init", "mine", *files, says=("train.fr:120: not valid UTF-8",))
    assert os.listdir() == []


def test_init_on_a_missing_file(check_refused: Refused) -> None:
    check_refused("init", "mine", "--source", "no.en", "--target", "no.fr", says=("no.en: no such file",))
    assert os.listdir() == []


def test_init_on_one_sentence_repeated(check_refused: Refused, project: Path) -> None:
    files = sides(project, 120)
    for ending in ("en", "fr"):
        edit(project.parent / "data" / f"train.{ending}", lambda lines: lines[:1] * 120)
    check_refused("init", "mine", *files, says=("1 different sentences", "too few to learn from"))
    assert os.listdir() == []


def test_init_holding_out_too_much(check_refused: Refused, project: Path) -> None:
    check_refused("init", "mine", *sides(project, 120), "--valid", "100", says=("120 of them", "--valid and --test"))
    assert os.listdir() == []


@pytest.mark.parametrize("demo", [False, True])
@pytest.mark.parametrize("there", ["config.toml", "data/train.en"])
def test_init_into_an_existing_project(check_refused: Refused, project: Path, there: str, demo: bool) -> None:
    file = Path("mine") / there
    file.parent.mkdir(parents=True)
    file.write_text("precious")
    corpus = ["--demo"] if demo else sides(project, 120)
    check_refused("init", "mine", *corpus, says=("mine holds", "nothing was written"))
    assert [path for path in Path("mine").rglob("*") if path.is_file()] == [file]
    assert file.read_text() == "precious"


@pytest.mark.parametrize("name", ["../up", "e n", "tsv"])
def test_init_with_an_impossible_language(check_refused: Refused, project: Path, name: str) -> None:
    check_refused(
        "init", "mine", *sides(project, 120), "--source-lang", name, says=(f"'{name}' cannot name a language",)
    )
    assert os.listdir() == []


def test_init_with_one_language_twice(check_refused: Refused, project: Path) -> None:
    check_refused("init", "mine", *sides(project, 120), "--source-lang", "fr", says=("Both languages", "'fr'"))
    assert os.listdir() == []


@pytest.mark.parametrize("files", [(), ("--source", "a.en"), ("--target", "a.fr")])
def test_init_without_two_files(check_refused: Refused, files: tuple[str, ...]) -> None:
    check_refused("init", "mine", *files, says=("--source and --target", "--demo"))
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--source", "a.en"), ("--target", "a.fr"), ("--source-lang", "en"), ("--target-lang", "fr")),
        *(("--valid", "20"), ("--test", "20")),
    ],
)
def test_init_of_the_demo_and_another_corpus(check_refused: Refused, option: str, value: str) -> None:
    check_refused("init", "mine", "--demo", option, value, says=(f"Leave out {option}, or leave out --demo",))
    assert os.listdir() == []


# -- the command line itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("evaluate", "run", "--splt", "test"), ("--splt", "--split")),
        (("text", "run", "--beam", "0"), ("--beam", "1")),
        (("text", "run", "--nbest", "x"), ("--nbest", "x")),
        (("align", "run", "--source", "f", "--format", "docx"), ("docx", "pharaoh")),
        (("align", "run"), ("--source",)),
        (("translte",), ("translte",)),
        (("train",), ("CONFIG",)),
    ],
)
def test_misspelt_command_lines(check_refused: Refused, arguments: tuple[str, ...], says: tuple[str, ...]) -> None:
    check_refused(*arguments, says=says)


def test_refusals_of_the_real_command(translate: Any, project: Path, tiny_run: Path, tmp_path: Path) -> None:
    """What is printed before an error, and how a process ends, only a process shows."""
    done = translate("train", project, "train.stepps=3", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: command line: train.stepps: unknown setting. Did you mean 'steps'?\n"
    done = translate("text", tiny_run, input=b"fine\nalso fine\nnot \xff fine\nnever reached\n", text=False)
    assert done.returncode == 2
    assert done.stdout.count(b"\n") == 2, "lines before the broken one are answered"
    assert re.fullmatch(rb"Error: stdin:3: not valid UTF-8 [^\n]+\n", done.stderr)
