"""Settings: what a file and the command line may say, and what is said about a mistake."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from translate.config import (
    Config,
    SearchConfig,
    Section,
    TrainConfig,
    check_config,
    choices,
    dump_config,
    load_config,
    resolve_threads,
    settings_of,
)
from translate.config.members import DECODERS
from translate.decoding.hypotheses import NORMALIZATIONS
from translate.errors import ConfigError
from translate.training.optim import OPTIMIZERS

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.toml"))
SMALLEST = """
[data]
folder = "corpus"
source_lang = "en"
target_lang = "fr"
[train]
steps = 100
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The smallest configuration there is."""
    path = tmp_path / "mine.toml"
    path.write_text(SMALLEST)
    return path


def complaint(file: Path, *overrides: str) -> str:
    """What is said about a configuration that is refused."""
    with pytest.raises(ConfigError) as caught:
        load_config(file, overrides)
    return str(caught.value)


def sections(section: type[Section], prefix: str = "") -> Iterator[tuple[str, type[Section]]]:
    """A section and all below it, by dotted name."""
    yield prefix.rstrip("."), section
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from sections(field.annotation, f"{prefix}{name}.")


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_a_misspelt_setting_is_named_with_its_file_and_the_likely_name(file: Path) -> None:
    file.write_text(SMALLEST + '[model.attention]\nscroe = "dot"\n')
    assert complaint(file) == f"{file}: model.attention.scroe: unknown setting. Did you mean 'score'?"


def test_a_misspelt_section_is_named_likewise(file: Path) -> None:
    file.write_text(SMALLEST + '[modle.attention]\nscore = "dot"\n')
    assert complaint(file) == f"{file}: modle: unknown setting. Did you mean 'model'?"


def test_a_setting_like_no_other_gets_the_list(file: Path) -> None:
    message = complaint(file, "search.xyzzy=1")
    assert message.startswith("command line: search.xyzzy: unknown setting. There are: beam, ")


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("train.stesp=5", "train.stesp"),
        ("train.steps=none", "train.steps"),
        ("train.steps=0", "train.steps"),
        ("train.learning_rate=fast", "train.learning_rate"),
        ("train.learning_rate=inf", "train.learning_rate"),
        ("train.minutes=nan", "train.minutes"),
        ("model.attention.score=dto", "model.attention.score"),
        ("modle.attention.score=dot", "modle"),
        ("model.atention.score=dot", "model.atention"),
        ("data.folder.name=x", "data.folder"),
        ('train.betas=[0.9, "x"]', "train.betas.1"),
        ("train.betas=[0.9, 1.5]", "train.betas.1"),
    ],
)
def test_a_wrong_override_is_blamed_on_the_command_line(file: Path, override: str, key: str) -> None:
    assert complaint(file, override).startswith(f"command line: {key}: ")


def test_an_override_is_not_blamed_for_the_file(file: Path) -> None:
    file.write_text(SMALLEST + "warmup = -1\n")
    assert complaint(file, "train.clip=2").startswith(f"{file}: train.warmup: -1: ")


def test_all_mistakes_are_told_at_once(file: Path) -> None:
    file.write_text(SMALLEST + "warmup = -1\n[search]\nbeem = 3\n")
    lines = complaint(file, "train.clip=-2").split("\n")
    assert sorted(line.split(": ")[1] for line in lines) == ["search.beem", "train.clip", "train.warmup"]


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("model.decoder.kind=bahdanu", "Did you mean 'bahdanau'?"),
        ("model.decoder.kind=lung", "Did you mean 'luong'?"),
        ("model.attention.score=scaleddot", "Did you mean 'scaled_dot'?"),
    ],
)
def test_a_misspelt_choice_gets_the_likely_one(file: Path, override: str, hint: str) -> None:
    message = complaint(file, override)
    assert "is not one of" in message
    assert message.endswith(hint)


@pytest.mark.parametrize("value", ["or", "xyzzy"])
def test_a_choice_like_no_other_gets_the_list_only(file: Path, value: str) -> None:
    """The word "or" of the list itself is no choice."""
    message = complaint(file, f"model.attention.score={value}")
    assert "'additive'" in message
    assert "Did you mean" not in message
    assert message.endswith("A member of your own needs --plugin FILE.")


@pytest.mark.parametrize("override", ["train.steps", "=5", ""])
def test_an_override_without_key_or_value_is_refused(file: Path, override: str) -> None:
    assert "is not of the form key=value" in complaint(file, override)


def test_a_missing_setting_is_named(file: Path) -> None:
    file.write_text('[data]\nfolder = "x"\nsource_lang = "en"\n[train]\nsteps = 1\n')
    assert complaint(file).startswith(f"{file}: data.target_lang: this setting is missing")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("search.beam=5", "search.groups=2"), "search.groups = 2 does not divide search.beam = 5"),
        (("search.beam=4", "search.groups=2", "search.keep_entities=true"), "both divide the beam"),
        (("search.sample=true", "search.keep_entities=true"), "need beam search"),
    ],
)
def test_a_search_that_cannot_work_is_refused_before_training(
    file: Path, overrides: tuple[str, ...], message: str
) -> None:
    assert message in complaint(file, *overrides)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("steps=5", "steps: unknown setting. Did you mean 'train.steps'?"),
        ("model.summary=mean", "Did you mean 'model.encoder.summary'?"),
        ("train=5", "train: 5: this is a section; name a setting in it, as in train.steps=…."),
        ("train.steps=many", "train.steps: 'many': a whole number is needed."),
        ("train.clip=much", "a number is needed, as in train.clip="),
        ("train.betas=0.9", "a list in brackets is needed, as in train.betas=[0.9, 0.999]."),
        ("train.compile=maybe", "true or false is needed, as in train.compile=false."),
        ("data.train=[train,back]", """as in 'data.train=["one", "two"]'"""),
    ],
)
def test_what_is_needed_is_said_in_the_users_words(file: Path, override: str, message: str) -> None:
    assert message in complaint(file, override)


def test_training_without_an_end_is_refused(file: Path) -> None:
    file.write_text(SMALLEST.replace("steps = 100", ""))
    assert complaint(file) == f"{file}: train: give 'steps' or 'minutes', so that training has an end"
    assert load_config(file, ["train.minutes=2"]).train.minutes == 2.0


def test_three_way_tying_needs_one_vocabulary(file: Path) -> None:
    message = complaint(file, "model.embedding.tied=three", "tokenizer.joint=false")
    assert "model.embedding.tied = 'three'" in message
    assert "tokenizer.joint = true" in message
    assert load_config(file, ["model.embedding.tied=three"]).model.embedding.tied == "three"
    assert load_config(file, ["model.embedding.tied=two", "tokenizer.joint=false"]).tokenizer.joint is False


def test_a_plain_decoder_needs_a_summary(file: Path) -> None:
    """Without attention the summary is all it knows of the source."""
    message = complaint(file, "model.decoder.kind=plain", "model.encoder.summary=zero")
    assert "model: decoder.kind = 'plain'" in message
    assert "encoder.summary = 'zero'" in message
    assert load_config(file, ["model.encoder.summary=zero"]).model.encoder.summary == "zero"


def test_settings_that_only_clash_together_name_both_origins(file: Path) -> None:
    assert complaint(file, "train.average=1").startswith(f"{file} with the command line: train: average = 1")
    file.write_text(SMALLEST + "average = 1\n")
    assert complaint(file, "search.beam=2").startswith(f"{file}: train: average = 1")


def test_a_missing_file_gets_the_command_that_writes_one(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    assert complaint(path).startswith(f"{path}: no such file. `translate init ")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert complaint(tmp_path).startswith(f"{tmp_path} is a folder")


def test_a_path_through_a_file_is_the_users_mistake(file: Path) -> None:
    assert complaint(file / "x.toml").startswith(f"{file / 'x.toml'}: ")


@pytest.mark.parametrize("content", [b"[data\n", b"[data]\nfolder = caf\xe9\n", b"a = 1\na = 2\n"])
def test_invalid_toml_is_told_with_its_file(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert complaint(file).startswith(f"{file}: not valid TOML: ")


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("data.source_lang=no", "no"),
        ("data.source_lang=true", "true"),
        ("data.train=2024", "2024"),
        ("train.learning_rate=1e-4", 1e-4),
        ("train.learning_rate=1", 1.0),
        ("train.steps=500", 500),
        ("train.minutes=0.5", 0.5),
        ("train.betas=[0.8, 0.98]", (0.8, 0.98)),
        ("tokenizer.joint=false", False),
        ("model.decoder.input_feeding=true", True),
        ("model.attention.score=general", "general"),
        ("train.teacher_forcing.ratio=0.25", 0.25),
    ],
)
def test_overrides_have_the_type_of_their_setting(file: Path, override: str, value: object) -> None:
    found: Any = load_config(file, [override])
    for part in override.partition("=")[0].split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_an_override_leaves_its_neighbours_alone(file: Path) -> None:
    file.write_text(SMALLEST + "seed = 7\nclip = 3.0\n")
    train = load_config(file, ["train.clip=2", "train.clip=4"]).train
    assert (train.steps, train.seed, train.clip) == (100, 7, 4.0)


def test_paths_are_relative_to_where_they_are_written(
    file: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(SMALLEST.replace('"corpus"', '"../corpus"') + 'init_from = "runs/old"\n')
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    config = load_config(file)
    assert config.data.folder == str(file.parent.parent / "corpus")
    assert config.train.init_from == str(file.parent / "runs" / "old")
    config = load_config(file, ["data.folder=here", "train.init_from=../there"])
    assert config.data.folder == str(elsewhere / "here")
    assert config.train.init_from == str(elsewhere.parent / "there")


def test_a_configuration_given_by_a_relative_path_counts_from_its_own_folder(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent.parent)
    assert load_config(Path(file.parent.name) / file.name).data.folder == str(file.parent / "corpus")


def test_absolute_and_home_paths_stay(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert load_config(file, ["data.folder=/a/b"]).data.folder == "/a/b"
    assert load_config(file, ["data.folder=~/b"]).data.folder == "/home/someone/b"
    # Nobody of that name: an ordinary folder, of which the corpus reader will say that it is not there.
    assert load_config(file, ["data.folder=~no-such-user/b"]).data.folder == f"{os.getcwd()}/~no-such-user/b"


def test_a_data_set_of_the_hub_is_no_path(file: Path) -> None:
    assert load_config(file, ["data.folder=hub:owner/name"]).data.folder == "hub:owner/name"
    file.write_text(SMALLEST.replace('"corpus"', '"hub:owner/name"'))
    assert load_config(file).data.folder == "hub:owner/name"


def test_threads_become_a_number_once() -> None:
    tree = {"data": {"folder": "x", "source_lang": "a", "target_lang": "b"}, "train": {"steps": 1}}
    assert resolve_threads(check_config(tree, "here")).train.threads >= 1
    tree["train"]["threads"] = 77  # type: ignore[index]
    assert resolve_threads(check_config(tree, "here")).train.threads == 77


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
positive = st.floats(1e-9, 1e9)


@settings(deadline=None)  # a busy disk is not a mistake
@given(
    data=st.fixed_dictionaries(
        {"folder": st.just("hub:a/b"), "source_lang": names, "target_lang": names, "train": names},
        optional={"max_ratio": positive, "max_length": st.integers(1, 10**6)},
    ),
    train=st.fixed_dictionaries(
        {"steps": st.integers(1, 10**9), "betas": st.tuples(st.floats(0, 0.999), st.floats(0, 0.999))},
        optional={
            "minutes": positive,
            "learning_rate": positive,
            "seed": st.integers(0, 2**31 - 1),
            "init_from": st.just("/runs/old"),
            "teacher_forcing": st.fixed_dictionaries({"ratio": st.floats(0, 1), "unit": st.just("batch")}),
        },
    ),
    decoder=st.fixed_dictionaries(
        {
            "kind": st.sampled_from([name for name, decoder in DECODERS.items() if decoder.scores is None]),
            "input_feeding": st.booleans(),
            "copy": st.just(False),
        }
    ),
)
def test_what_is_written_reads_back_equal(
    data: Mapping[str, Any],
    train: Mapping[str, Any],
    decoder: Mapping[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = check_config({"data": data, "train": train, "model": {"decoder": decoder}}, "here")
    path = tmp_path_factory.getbasetemp() / "written.toml"
    path.write_bytes(dump_config(config).encode())
    assert load_config(path) == config


# -- the settings themselves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "name", "table"),
    [
        (TrainConfig, "optimizer", OPTIMIZERS),
        (SearchConfig, "normalization", NORMALIZATIONS),
    ],
)
def test_choices_are_what_the_tables_hold(section: type[Section], name: str, table: Mapping[str, object]) -> None:
    assert set(choices(section, name)) == set(table)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_our_own_configurations_load(path: Path) -> None:
    config = load_config(path)
    assert config.data.folder.startswith(("/", "hub:"))


def test_there_are_configurations_to_load() -> None:
    assert "demo.toml" in {path.name for path in CONFIGS}


@pytest.mark.parametrize(
    ("key", "section"), list(sections(Config)), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_setting_is_described(key: str, section: type[Section]) -> None:
    """`translate init` writes these sentences into new files."""
    section = settings_of(key)
    assert section is not None
    assert section.__doc__
    for name, field in section.model_fields.items():
        if settings_of(f"{key}.{name}") is None:
            assert field.description, f"{key}.{name} has no docstring"
