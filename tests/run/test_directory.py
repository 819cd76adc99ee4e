"""What a run directory says of itself: settings, environment, job, and what a killed process left aside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.small_runs import word_tokenizers, write_run
from translate.errors import RunError
from translate.run import directory
from translate.run.directory import ENVIRONMENT, Run
from translate.run.sealed_files import MANIFEST, append_line, damage_of, write_sealed


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(write_run(tmp_path / "run"))


def test_a_run_knows_its_settings_and_tokenizers(run: Run) -> None:
    assert run.exists()
    assert run.config().data.direction == ("en", "fr")
    assert tuple(side.model for side in run.tokenizers()) == tuple(side.model for side in word_tokenizers())
    assert run.environment() == {"plugins": []}
    assert run.plugins() == []


def test_a_run_may_be_made_again(run: Run) -> None:
    """By a training that was stopped before its first checkpoint."""
    run.create(run.config(), *run.tokenizers())
    assert [checkpoint.step for checkpoint in run.checkpoints()] == [1]


def test_a_plugin_that_has_changed_is_told_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "changed_plugins", lambda *_: [f"the plugin of {run.path} has changed"])
    with pytest.warns(UserWarning, match="has changed; results may differ") as said:
        assert run.config() == run.config()
    assert len(said) == 1


def test_what_makes_a_folder_a_run(run: Run, tmp_path: Path) -> None:
    for name in ("tokenizer.source.model", "checkpoints"):
        assert Run(run.path).exists()
        (run.path / name).rename(tmp_path / name)
    assert not Run(run.path).exists(), "neither checkpoints nor tokenizers"
    (tmp_path / "tokenizer.source.model").rename(run.path / "tokenizer.source.model")
    assert Run(run.path).exists(), "a run that has not saved yet"
    (run.path / "config.toml").unlink()
    assert not Run(run.path).exists()
    with pytest.raises(RunError, match="no such run"):
        Run.open(tmp_path / "absent")


def test_settings_that_cannot_be_read_are_told(run: Run) -> None:
    path = run.path / "config.toml"
    good = path.read_text()
    path.write_text(good + "\n= 3")
    with pytest.raises(RunError, match=r"config\.toml: not readable"):
        run.config()
    path.write_text(good.replace("[search]", "[search]\nbeem = 3"))
    with pytest.raises(RunError, match=r"(?s)beem.*CHANGELOG\.md says what changed"):
        run.config()


def test_the_environment_is_noted_part_by_part(run: Run) -> None:
    run.note_environment(torch="1", cores=2)
    run.note_environment(cores=3)
    assert run.environment() == {"plugins": [], "torch": "1", "cores": 3}
    (run.path / ENVIRONMENT).unlink()
    assert run.environment() == {}
    assert run.plugins() == []
    for content, message in (("[1]", "is not a JSON object"), ("{", "not readable"), ("[" * 100_000, "not readable")):
        (run.path / ENVIRONMENT).write_text(content)
        with pytest.raises(RunError, match=message):
            run.environment()


def test_the_note_of_plugins_is_read(run: Run) -> None:
    note = {"name": "mine.py", "sha256": "ab", "members": ["attention.score=mine"]}
    run.note_environment(plugins=[note])
    (plugin,) = run.plugins()
    assert (plugin.name, plugin.sha256, plugin.members) == ("mine.py", "ab", ("attention.score=mine",))
    for broken in ([{"name": "x"}], [3], 3):
        run.note_environment(plugins=broken)
        with pytest.raises(RunError, match="the record of its plugins is not readable"):
            run.plugins()


def test_a_job_is_noted(run: Run) -> None:
    assert run.job() is None
    run.note_job("slurm 17")
    assert run.job() == "slurm 17"


def test_the_best_model_is_loaded_or_the_one_that_is_named(run: Run, tmp_path: Path) -> None:
    other = Run(write_run(tmp_path / "other", seed=2)).best().weights()
    later = run.save("step-00000002", other, {}, {"step": 2, "seconds": 1.0, "last_validated": 2})
    best, second = run.load_model(), run.load_model(later)
    assert not best.training
    first = run.checkpoints()[0].weights()
    for name, parameter in best.named_parameters():
        assert torch.equal(parameter, first[name])
    for name, parameter in second.named_parameters():
        assert torch.equal(parameter, other[name])
    run.point("best", later)
    assert run.best().step == 2
    assert run.best().digest() == json.loads((later.path / MANIFEST).read_text())["sha256"]["model.safetensors"]


def test_more_layers_than_tensors_do_not_fit(run: Run) -> None:
    path = run.path / "config.toml"
    good = path.read_text()
    weights = len(run.best().weights())
    section = good.index("[model.decoder]")
    for layers, fewer in ((weights, False), (weights + 1, True)):
        path.write_text(good[:section] + good[section:].replace("layers = 1", f"layers = {layers}", 1))
        with pytest.raises(RunError, match="does not fit") as failure:
            run.load_model()
        assert (f"{layers} layers, but {weights} tensors" in str(failure.value)) == fewer


# -- what a killed process left ---------------------------------------------------------------------------------------


def test_a_checkpoint_that_was_set_aside_is_put_back(run: Run) -> None:
    (run.checkpoints_path / "step-00000001").rename(run.checkpoints_path / ".tmp-old-step-00000001")
    with run.lock():
        assert [checkpoint.step for checkpoint in run.checkpoints()] == [1]
        assert run.checkpoints()[0].damage() is None


def test_what_has_been_replaced_is_not_put_back(run: Run) -> None:
    aside = run.checkpoints_path / ".tmp-old-step-00000001"
    aside.mkdir()
    (run.path / ".tmp-old-head").mkdir()
    with run.lock():
        assert run.checkpoints()[0].damage() is None
        assert aside.exists()
        assert (run.path / "head").is_dir(), "what stands beside checkpoints/ too"
    run.purge({"step-00000001"})
    assert not aside.exists()


def test_a_file_in_the_way_of_a_run_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunError, match=r"cannot hold a run: .*Give another --run"), Run(tmp_path / "run").lock():
        pass


# -- sealed folders ---------------------------------------------------------------------------------------------------


def test_damage_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "sealed"
    write_sealed(folder, {"a": b"1", "b": b"2"})
    assert damage_of(folder, {"a", "b"}) is None
    assert damage_of(folder, {"a", "b", "c"}) == "MANIFEST.json does not name a, b and c"
    assert damage_of(folder, {"a"}) is not None, "a file too many"
    (folder / "b").write_bytes(b"3")
    assert damage_of(folder, {"a", "b"}) == "b does not match its SHA-256 in MANIFEST.json"
    (folder / "a").unlink()
    assert damage_of(folder, {"a", "b"}) == "a is missing"
    (folder / MANIFEST).write_text("[]")
    assert str(damage_of(folder, {"a", "b"})).startswith("MANIFEST.json is not readable")
    (folder / MANIFEST).unlink()
    assert damage_of(folder, {"a", "b"}) == "MANIFEST.json is missing"


def test_a_sealed_folder_replaces_the_one_before(tmp_path: Path) -> None:
    place = tmp_path / "not" / "yet" / "there"
    for content in (b"1", b"2"):
        write_sealed(place / "sealed", {"a": content})
        assert (place / "sealed" / "a").read_bytes() == content
        assert [path.name for path in place.iterdir()] == ["sealed"]
        for leftover in (".tmp-sealed", ".tmp-old-sealed"):
            (place / leftover / "deep").mkdir(parents=True)
    write_sealed(place / "sealed", {"a": b"3"})
    assert [path.name for path in place.iterdir()] == ["sealed"]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"writing \d+ bytes failed"):
        write_sealed(tmp_path / "file" / "sealed", {"a": b"1"})


def test_lines_are_added(tmp_path: Path) -> None:
    for line in ("one", "two é"):
        append_line(tmp_path / "lines", line)
    assert (tmp_path / "lines").read_text(encoding="utf-8") == "one\ntwo é\n"
    with pytest.raises(RunError, match="writing 4 bytes failed"):
        append_line(tmp_path, "one")
