"""What happens before the first update: tokenizers, the run directory, the training pairs as ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from translate.config import HUB_PREFIX, Config, dump_config, resolve_threads
from translate.data.dataset import PairDataset, content_key, prepare
from translate.errors import ConfigError, DataError, RunError
from translate.evaluation.evaluate import read_pairs, run_split_files
from translate.models.plugins import changed_plugins
from translate.models.seq2seq import Seq2Seq
from translate.run.checkpoint import check_fit
from translate.run.directory import ENVIRONMENT, Run
from translate.run.sealed_files import TEMPORARY, write_file
from translate.text.corpus import Corpus, find_corpus, joined, parallel_files, tidy
from translate.text.tokenizer import Tokenizer, train_tokenizer
from translate.text.vectors import Vector, read_vectors
from translate.training.guided import Guide, fingerprint

Say = Callable[[str], None]
Split = Literal["train", "valid", "test"]

LEAST_TO_TRAIN = 2
# Settings that may change when a run is resumed; all others would make it another run.
MAY_CHANGE = ("train.steps", "train.minutes", "train.patience", "train.keep_last", "train.device", "data.folder")
MAY_CHANGE_SECTIONS = ("search.", "logging.")


@dataclass(frozen=True)
class TrainingInputs:
    """All that the trainer needs."""

    config: Config
    run: Run
    source: Tokenizer
    target: Tokenizer
    train: PairDataset
    valid: PairDataset
    weights: NDArray[np.float64] | None
    """How often each training pair is used per epoch; None is once."""
    valid_sources: list[str]
    valid_references: list[str]


def open_inputs(config: Config, run: Run, resume: bool, test: bool, say: Say) -> TrainingInputs:
    """Create a new run or resume an old one."""
    if run.exists():
        if not resume:
            raise RunError(f"{run.path} holds a run already. Go on with it by --resume, or give another --run.")
        config = merge_for_resume(config, run)
        write_file(run.path / "config.toml", dump_config(config).encode())
        if test:
            _add_test_split(config, run)
    else:
        if run.path.is_dir() and any(
            not p.name.startswith(TEMPORARY) and p.name not in PREPARED for p in run.path.iterdir()
        ):
            raise RunError(f"{run.path} holds files but is not a run. Give another --run.")
        config = resolve_threads(config)
        _create(config, run, test, say)
    source, target = run.tokenizers()
    train = _training_pairs(config, run, source, target, say)
    valid = _valid_pairs(config, run, source, target)
    weights = _row_weights(config, run, train)
    return TrainingInputs(
        config, run, source, target, train, valid, weights, *read_pairs(*run_split_files(run.path, "valid"))
    )


def open_prepared(run: Run) -> TrainingInputs:
    """The inputs of a run that the first process has created or resumed."""
    source, target = run.tokenizers()
    train, valid = (PairDataset(run.path / "cache" / f"{split}.arrow") for split in ("train", "valid"))
    config = run.config()
    weights = _row_weights(config, run, train)
    return TrainingInputs(
        config, run, source, target, train, valid, weights, *read_pairs(*run_split_files(run.path, "valid"))
    )


PREPARED = {
    *(".lock", ".job", "data", "cache", "tokenizer.source.model", "tokenizer.target.model", "checkpoints"),
    ENVIRONMENT,
}


def _create(config: Config, run: Run, test: bool, say: Say) -> None:
    corpora: dict[Split, Corpus] = {split: find_corpus(config.data, split) for split in splits(test)}
    if config.data.folder.startswith(HUB_PREFIX):
        corpora = {split: _downloaded(corpus, run.path / "cache", split) for split, corpus in corpora.items()}
    note: dict[str, Any] = {split: _note_of(corpus) for split, corpus in corpora.items()}
    links = config.train.guided.links
    if links is not None:
        note["guided"] = {"files": [links], "sha256": fingerprint(Path(links))}
    source, target = _tokenizers(config, corpora["train"], say)
    _check_start(config, source, target)
    (run.path / "data").mkdir(parents=True, exist_ok=True)
    for split, corpus in corpora.items():
        if split != "train":
            _copy_split(corpus, run.path / "data", split)
    write_file(run.path / "data" / "sources.json", json.dumps(note, indent=1).encode())
    pairs = _training_pairs(config, run, source, target, say, corpora["train"])
    if links is not None:
        Guide(Path(links), pairs, source, target)  # check it before the run is created
    _valid_pairs(config, run, source, target)  # check them before the run is created
    run.create(config, source, target)


def _check_start(config: Config, source: Tokenizer, target: Tokenizer) -> None:
    """Check initial weights before the run is created: otherwise a second try would fail because it exists."""
    for _ in start_vectors(config, source, target):
        pass
    if config.train.init_from is None:
        return
    if config.model.embedding.tied == "three" and source.model != target.model:
        raise ConfigError(
            f"train.init_from = '{config.train.init_from}' has two vocabularies, but model.embedding.tied = 'three' "
            "shares one. Use 'two'."
        )
    weights = other_run(config.train.init_from).best().weights()
    with torch.device("meta"):
        shapes = Seq2Seq(config.model, source.size, target.size, config.data.max_length)
    check_fit(shapes, weights, where=config.train.init_from)


def other_run(init_from: str) -> Run:
    """The run that train.init_from names."""
    try:
        return Run.open(Path(init_from))
    except RunError as error:
        raise RunError(f"train.init_from: {error}") from None


def start_vectors(config: Config, source: Tokenizer, target: Tokenizer) -> Iterator[tuple[str, str, dict[int, Vector]]]:
    """Side, file and vectors of each file of word vectors that the configuration names, the source's first."""
    files = {"source": config.train.source_embeddings, "target": config.train.target_embeddings}
    for (side, file), tokenizer in zip(files.items(), (source, target), strict=True):
        if file is None:
            continue
        setting = f"train.{side}_embeddings"
        if not Path(file).is_file():
            what = "is not a file" if Path(file).exists() else "no such file"
            raise ConfigError(f"{setting}: {file}: {what}. Give a text file of word vectors, or leave the setting out.")
        pieces = tokenizer.pieces(range(tokenizer.size))
        try:
            yield side, file, read_vectors(Path(file), pieces, config.model.embedding.width)
        except DataError as error:
            raise ConfigError(f"{setting}: {error}") from None


def _note_of(corpus: Corpus) -> dict[str, Any]:
    note: dict[str, Any] = {"files": [str(path) for path in corpus.files], "sha256": corpus.fingerprint()}
    if corpus.parts:  # line numbers continue from one part to the next
        note["pairs"] = [sum(1 for _ in part.pairs()) for part in corpus.parts]
    return note


def _row_weights(config: Config, run: Run, train: PairDataset) -> NDArray[np.float64] | None:
    """The weight of each pair's corpus, found by its line number."""
    weights = config.data.weights
    if weights is None:
        return None
    counts = _read_note(run)["train"].get("pairs", [len(train.lines)])
    part = np.searchsorted(np.cumsum(counts)[:-1], train.lines, side="left")
    return np.array(weights, np.float64)[part]


def _add_test_split(config: Config, run: Run) -> None:
    """Give a run that was started with --no-test its own copy of the test set."""
    note = _read_note(run)
    if "test" not in note:
        corpus = find_corpus(config.data, "test")
        _copy_split(corpus, run.path / "data", "test")
        note["test"] = _note_of(corpus)
        write_file(run.path / "data" / "sources.json", json.dumps(note, indent=1).encode())


def splits(test: bool) -> tuple[Split, ...]:
    return ("train", "valid", "test") if test else ("train", "valid")


def _tokenizers(config: Config, corpus: Corpus, say: Say) -> tuple[Tokenizer, Tokenizer]:
    if config.train.init_from is not None:
        return other_run(config.train.init_from).tokenizers()
    if next(corpus.pairs(), None) is None:
        raise DataError(f"{corpus.name} has no pairs: there is nothing to learn from.")

    def lines(*sides: int) -> Iterator[str]:
        return (pair[side] for pair in corpus.pairs() for side in sides)

    say("Learning the tokenizer ...")
    if config.tokenizer.joint:
        joint = Tokenizer(train_tokenizer(lines(0, 1), config.tokenizer, config.train.seed, say))
        return joint, joint
    source, target = (Tokenizer(train_tokenizer(lines(s), config.tokenizer, config.train.seed, say)) for s in (0, 1))
    return source, target


def _downloaded(corpus: Corpus, folder: Path, split: str) -> Corpus:
    """Read a data set of the hub once, so that all passes over it give the same pairs."""
    if corpus.parts:
        return joined([_downloaded(part, folder, f"{split}-{place}") for place, part in enumerate(corpus.parts)])
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / f"{split}.source", folder / f"{split}.target"
    with (
        files[0].open("w", encoding="utf-8", newline="\n") as source,
        files[1].open("w", encoding="utf-8", newline="\n") as target,
    ):
        for pair in corpus.pairs():
            source.write(tidy(pair.source) + "\n")
            target.write(tidy(pair.target) + "\n")
    return parallel_files(*files)


def _copy_split(corpus: Corpus, folder: Path, split: str) -> None:
    """Copy a split into the run, line for line, so that the run can be evaluated on another machine."""
    pairs = list(corpus.pairs())
    if not pairs:
        raise DataError(f"{corpus.name} has no pairs: the {split} set is empty.")
    for side, name in enumerate(("source", "target")):
        text = "".join(tidy(pair[side]) + "\n" for pair in pairs)
        write_file(folder / f"{split}.{name}", text.encode())


def _training_pairs(
    config: Config, run: Run, source: Tokenizer, target: Tokenizer, say: Say, corpus: Corpus | None = None
) -> PairDataset:
    """The prepared pairs; a run that was copied without them prepares them again from the same files."""
    path = run.path / "cache" / "train.arrow"
    noted = _read_note(run)["train"]["sha256"]
    key = content_key(noted, source, target, config.data)
    pairs = _cached(path, key, LEAST_TO_TRAIN)
    if pairs is not None:
        if corpus is not None:
            say(f"{corpus.name}: {len(pairs):,} pairs kept, prepared before.")
        return pairs
    path.parent.mkdir(exist_ok=True)
    if corpus is None:
        corpus = find_corpus(config.data, "train")
        if config.data.folder.startswith(HUB_PREFIX):
            corpus = _downloaded(corpus, run.path / "cache", "train")
        if corpus.fingerprint() != noted:
            raise DataError(f"{corpus.name} is not what this run was trained on: its SHA-256 differs.")
    report = prepare(corpus, source, target, config.data, path, key)
    say(f"{corpus.name}: {report}.")
    if report.kept < LEAST_TO_TRAIN:
        raise DataError(f"{corpus.name}: {report}. Training needs at least {LEAST_TO_TRAIN} pairs.")
    return PairDataset(path)


def _valid_pairs(config: Config, run: Run, source: Tokenizer, target: Tokenizer) -> PairDataset:
    path = run.path / "cache" / "valid.arrow"
    corpus = parallel_files(*run_split_files(run.path, "valid"))
    key = content_key(corpus.fingerprint(), source, target, config.data)
    pairs = _cached(path, key, fewest=1)
    if pairs is not None:
        return pairs
    report = prepare(corpus, source, target, config.data, path, key)
    if not report.kept:
        raise DataError(f"data.valid = '{config.data.valid}': {report}. Validation needs at least one pair.")
    return PairDataset(path)


def _cached(path: Path, key: str, fewest: int) -> PairDataset | None:
    """The pairs in the file if they were prepared from the same content; None otherwise, also if it is damaged."""
    try:
        pairs = PairDataset(path)
    except RunError:
        return None
    return pairs if pairs.key == key and len(pairs) >= fewest else None


def _read_note(run: Run) -> dict[str, Any]:
    path = run.path / "data" / "sources.json"
    try:
        note: dict[str, Any] = json.loads(path.read_text())
        return note
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: the record of the data's origin is not readable: {error}") from None


def merge_for_resume(config: Config, run: Run) -> Config:
    """The configuration of a resumed run; refuses changes that would make it another run, and changed data."""
    for change in changed_plugins(run.plugins(), str(run.path)):
        raise RunError(f"{change}. Give the file as it was, or start another --run.")
    old = run.config()
    if not config.train.threads:
        config = config.model_copy(update={"train": config.train.model_copy(update={"threads": old.train.threads})})
    before, after = _flat(old.model_dump(mode="json")), _flat(config.model_dump(mode="json"))
    differing = [key for key in after if before.get(key) != after[key] and not _may_change(key)]
    if differing:
        lines = [f"  {key}: {before.get(key)} in the run, {after[key]} now" for key in differing]
        raise RunError(f"{run.path} was started with other settings:\n" + "\n".join(lines) + "\nGive another --run.")
    note = _read_note(run)
    for split in splits("test" in note):
        if config.data.folder.startswith(HUB_PREFIX):
            continue  # its fingerprint would need another download; the run has its own copy
        corpus = find_corpus(config.data, split)
        if corpus.fingerprint() != note[split]["sha256"]:
            raise RunError(
                f"{corpus.name} has changed since the run was started (SHA-256 differs). "
                "Put the old file back, or start another --run."
            )
    links = config.train.guided.links
    if links is not None and fingerprint(Path(links)) != note["guided"]["sha256"]:
        raise RunError(f"{links} has changed since the run was started. Put the old file back, or start another --run.")
    return config


def _may_change(key: str) -> bool:
    return key in MAY_CHANGE or key.startswith(MAY_CHANGE_SECTIONS)


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for key, value in tree.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return flat
