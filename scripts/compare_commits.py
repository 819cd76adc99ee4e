"""Whether two commits compute the same: losses and gradients of many models in float64, and a short training.

    python scripts/compare_commits.py OLD NEW [--json] [--only TEXT] [--demo CONFIG [KEY=VALUE ...]]

OLD and NEW are folders that hold a checkout, or revisions of this repository, for which a worktree is made for a while.
The models are the rows of NEW's covering array (tests/models/covering.py) without dropout, and some of them again with
a large vocabulary and batch. Parameters are random numbers that depend on their present name alone. Each model is
trained on in three ways: with the reference as input, with a guide for its attention as well, and with its own words
as input here and there. --demo also trains CONFIG for 20 updates by both commands, in float32.

The exit code is 1 where the commits differ by more than 1e-9 (1e-5 in the demo), relative to max(1, |value|).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from checkouts import checked_out, run_python, run_translate
from numpy.typing import NDArray

OLD_NAMES = Path("translate/models/old_names.py")
TOLERANCE, DEMO_TOLERANCE = 1e-9, 1e-5  # relative to max(1, |value|)
WORST = 1e30  # the difference from what is missing or not a number: JSON has no infinity
NUM_SHOWN = 10
DEMO_UPDATES = 20

FORMS = ("reference", "guided", "own words")
WITHOUT_DROPOUT = {
    "embedding": {"dropout": 0.0},
    "encoder": {"dropout": 0.0, "word_dropout": 0.0},
    "decoder": {"dropout": 0.0, "word_dropout": 0.0},
}
# Up to commit 703fa03 rows left the loop of a decoder by eights, so that a batch needs some sentences that end early.
TGT_LENGTHS = (3, 9, 1, 6, 6, 3, 8, 2, 6, 1, 3, 8, 3, 6, 1, 8, 3, 1, 6, 3, 2)  # in pieces, without the end symbol
SRC_LENGTHS = (7, 1, 5, 10, 3, 8, 2)  # repeated
MAX_LENGTH = 12
VOCABULARIES = (17, 19)  # of source and target, where these need not be the same
# Enough tokens and pieces that the log probabilities of a batch are formed in more than one part.
LARGE_VOCABULARY, LARGE_REPEATS = 9001, 6
LARGE_WIDTHS = {"embedding": 24, "encoder": 20, "attention": 28, "decoder": 32}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A model whose losses and gradients are compared."""

    name: str
    model: dict[str, dict[str, Any]]
    """Its settings by section."""
    attends: bool
    large: bool

    @property
    def vocabularies(self) -> tuple[int, int]:
        if self.large:
            return LARGE_VOCABULARY, LARGE_VOCABULARY
        joint = self.model["embedding"]["tied"] == "three" or self.model["decoder"]["copy"]
        return (VOCABULARIES[1] if joint else VOCABULARIES[0]), VOCABULARIES[1]

    @property
    def tgt_lengths(self) -> tuple[int, ...]:
        """In pieces. Hard attention draws at every step for every row that is still in the loop, and commits differ in
        when rows leave it: the same draws need targets of one length.
        """
        draws = self.model["attention"]["selection"].startswith("hard_")
        return (max(TGT_LENGTHS),) * len(TGT_LENGTHS) if draws else TGT_LENGTHS


@dataclass(frozen=True)
class Results:
    """What a commit has computed, by (model, form, name of the value)."""

    values: dict[tuple[str, str, str], Array]
    refused: dict[str, str]
    """Models that its configuration refuses, and why."""
    unknown: dict[str, str]
    """Those of them that have a member which it does not know."""


@dataclass(frozen=True)
class Difference:
    """How far two values are from each other at most."""

    model: str
    form: str
    name: str
    size: float
    """Relative to max(1, |value|)."""


# -- names of parameters -----------------------------------------------------------------------------------------------


def load_current_name(checkout: Path) -> Callable[[str], str]:
    """The checkout's function from any name that a parameter ever had to the present one."""
    file = checkout / OLD_NAMES
    if not file.is_file():
        return str
    spec = importlib.util.spec_from_file_location("old_names", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    current_name: Callable[[str], str] = module.current_name
    return current_name


# -- what runs with the code of one commit -----------------------------------------------------------------------------


def check_code(checkout: Path) -> None:
    """A process that has found other code than the commit's would compare nothing."""
    import translate

    assert Path(translate.__file__).is_relative_to(checkout), f"{translate.__file__} is not in {checkout}"


def write_cases(checkout: Path, out: Path) -> None:
    """Write the rows of the covering array, of members that come with the code, and the large models."""
    check_code(checkout)
    try:
        members = importlib.import_module("translate.config.members").MEMBERS
        built_in = {setting: tuple(table) for setting, table in members.items()}
    except ModuleNotFoundError:
        built_in = {}  # code that had no plugins
    sys.path.insert(0, str(checkout / "tests" / "models"))
    covering = importlib.import_module("covering")
    for setting, names in built_in.items():
        covering.SETTINGS[setting] = tuple(name for name in covering.SETTINGS[setting] if name in names)
    singles = covering.one_at_a_time()
    rows = {covering.describe(row): row for row in [*singles, *covering.cover()[0]]}
    large = [row for row in singles if row["decoder.copy"] or row["decoder.kind"] != "bahdanau"]
    cases = [_case(covering, name, row, large=False) for name, row in rows.items()]
    cases += [_case(covering, covering.describe(row), row, large=True) for row in [singles[0], *large]]
    out.write_text(json.dumps([asdict(case) for case in cases]))


def _case(covering: Any, name: str, row: dict[str, Any], large: bool) -> Case:
    model: dict[str, dict[str, Any]] = {}
    for key, value in {**covering.NUMBERS, **covering.DEFAULTS, **row}.items():
        section, _, setting = key.partition(".")
        model.setdefault(section, {})[setting] = value
    for section, settings in WITHOUT_DROPOUT.items():
        model[section].update(settings)
    if large:
        name = f"large: {name}"
        for section, width in LARGE_WIDTHS.items():
            model[section]["width"] = width
    return Case(name, model, not covering.is_idle("attention.score", row), large)


def write_results(checkout: Path, cases: Path, names: Path, out: Path) -> None:
    """Compute the losses and gradients of all models with the code of this process."""
    import torch
    from pydantic import ValidationError

    check_code(checkout)
    torch.set_num_threads(1)
    current_name = load_current_name(names)
    values: dict[tuple[str, str, str], Array] = {}
    refused: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for case in [Case(**tree) for tree in json.loads(cases.read_text())]:
        try:
            found = compute(case, current_name)
        except ValidationError as error:
            kinds = {problem["type"] for problem in error.errors()}
            reasons = "; ".join(problem["msg"] for problem in error.errors())
            (unknown if kinds == {"literal_error"} else refused)[case.name] = reasons
            continue
        values |= {(case.name, form, name): value for (form, name), value in found.items()}
    # One array, because a file of many thousands takes longer to write than to compute.
    index = [[*label, value.size] for label, value in values.items()]
    about = json.dumps({"index": index, "refused": refused, "unknown": unknown})
    flat = np.concatenate([np.zeros(0), *(value.ravel() for value in values.values())])
    np.savez(out, about=np.frombuffer(about.encode(), np.uint8), values=flat)


def compute(case: Case, current_name: Callable[[str], str]) -> dict[tuple[str, str], Array]:
    """The losses, the scale of rewards and the gradients of a model, by form and name."""
    import torch

    from translate.config import Config
    from translate.models.seq2seq import Seq2Seq
    from translate.training.extra_losses import RewardScale
    from translate.training.objective import Objective

    tree = {
        "data": {"folder": "-", "source_lang": "a", "target_lang": "b"},
        "train": {"steps": 1, "label_smoothing": 0.1},
        "model": case.model,
    }
    config = Config.model_validate(tree)
    model = Seq2Seq(config.model, *case.vocabularies, MAX_LENGTH).double().train()
    fill_by_name(model, current_name, 0.2 if case.large else 0.5)
    objective, batch = Objective(model, config), make_batch(case)
    guide = make_guide(batch)
    found: dict[tuple[str, str], Array] = {}
    for form in FORMS:
        if form == "guided" and not case.attends:
            continue
        scale = RewardScale(mean=-3.0, deviation=2.0, left=0.7, batches=3)
        model.zero_grad(set_to_none=True)
        torch.manual_seed(1)
        ratio = 0.5 if form == "own words" else 1.0
        smoothed, extra = objective(batch, ratio, 0.3, scale, guide if form == "guided" else None)
        (smoothed + extra).backward()
        found[form, "loss"] = np.array(float(smoothed))
        found[form, "extra losses"] = np.array(float(extra))
        found[form, "scale of rewards"] = np.array([scale.mean, scale.deviation, scale.left])
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                found[form, f"gradient of {current_name(name)}"] = parameter.grad.numpy().copy()
    return found


def fill_by_name(model: Any, current_name: Callable[[str], str], scale: float) -> None:
    """Random numbers for all parameters; those of a parameter depend on its present name alone."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            seed = hashlib.sha256(current_name(name).encode()).digest()
            numbers = np.random.default_rng(list(seed)).standard_normal(tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(scale * numbers))


def make_batch(case: Case) -> Any:
    """Sentences of many lengths, collated as training does; many words of a source come in its target."""
    from translate.data.batches import collate_shard
    from translate.data.dataset import PairDataset

    generator = np.random.default_rng(2)
    repeats = LARGE_REPEATS if case.large else 1
    most = min(case.vocabularies)
    pairs = []
    for row, length in enumerate(case.tgt_lengths * repeats):
        src = generator.integers(4, most, SRC_LENGTHS[row % len(SRC_LENGTHS)])
        copied, drawn = generator.choice(src, length), generator.integers(4, most, length)
        tgt = np.where(generator.random(length) < 0.5, copied, drawn)
        pairs.append((src.tolist(), tgt.tolist()))
    return collate_shard(PairDataset.from_pairs(pairs), np.arange(len(pairs)), rank=0, size=1)


def make_guide(batch: Any) -> Any:
    """Weights (B, T, S) that sum to one over the real tokens of each source."""
    import torch

    generator = torch.Generator().manual_seed(3)
    shape = (*batch.tgt_in.shape, batch.src.size(1))
    guide = torch.rand(shape, generator=generator, dtype=torch.float64) * batch.src_valid.unsqueeze(1)
    return guide / guide.sum(dim=2, keepdim=True)


# -- comparison --------------------------------------------------------------------------------------------------------


def read_results(path: Path) -> Results:
    """What `write_results` has written."""
    with np.load(path, allow_pickle=False) as arrays:
        about, flat = json.loads(arrays["about"].tobytes()), arrays["values"]
    values, begin = {}, 0
    for model, form, name, size in about["index"]:
        values[model, form, name] = flat[begin : begin + size]
        begin += size
    return Results(values, about["refused"], about["unknown"])


def distance(one: Array, other: Array) -> float:
    """The largest difference of two arrays, relative to max(1, |value|)."""
    if one.shape != other.shape:
        return WORST
    sizes = np.abs(one - other) / np.maximum(1.0, np.abs(one))
    return float(np.nan_to_num(sizes, nan=WORST, posinf=WORST).max(initial=0.0))


def compare(old: Results, new: Results) -> list[Difference]:
    """The differences of all values, largest first; what one of them lacks differs as much as anything can."""
    left_out = set(new.unknown) | set(old.unknown)
    found = [
        Difference(*label, distance(old.values[label], new.values[label]))
        for label in old.values.keys() & new.values.keys()
    ]
    found += [
        Difference(model, form, f"{name} (in {'OLD' if (model, form, name) in old.values else 'NEW'} alone)", WORST)
        for model, form, name in old.values.keys() ^ new.values.keys()
        if model not in left_out
    ]
    both = old.refused | new.refused
    found += [Difference(model, "-", f"refused: {reason}", WORST) for model, reason in both.items()]
    return sorted(found, key=lambda one: (-one.size, one.model, one.form, one.name))


def compare_models(old: Path, new: Path, only: str, folder: Path) -> dict[str, Any]:
    """The differences of all models whose name has `only` in it, as they are printed."""
    script = Path(__file__).resolve()
    cases, outs = folder / "cases.json", {"old": folder / "old.npz", "new": folder / "new.npz"}
    run_python(new, folder, script, "--worker", "cases", new, cases, threads=1)
    chosen = [case for case in json.loads(cases.read_text()) if only in case["name"]]
    cases.write_text(json.dumps(chosen))
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(
                run_python, commit, folder, script, "--worker", "results", commit, cases, new, outs[name], threads=1
            )
            for name, commit in (("old", old), ("new", new))
        ]
        for process in both:
            process.result()
    before, after = read_results(outs["old"]), read_results(outs["new"])
    differences = compare(before, after)
    by_value: dict[str, float] = {}
    for one in differences:
        kind = "gradients" if one.name.startswith("gradient") else one.name
        by_value[kind] = max(by_value.get(kind, 0.0), one.size)
    return {
        "models": len({model for model, _, _ in after.values}),
        "arrays": len(differences),
        "numbers": sum(value.size for value in after.values.values()),
        "not_in_both": sorted(set(before.unknown) | set(after.unknown)),
        "tolerance": TOLERANCE,
        "largest": differences[0].size if differences else WORST,
        "largest_by_value": by_value,
        "differences": [asdict(one) for one in differences[:NUM_SHOWN]],
    }


# -- the demo ----------------------------------------------------------------------------------------------------------


def compare_demo(old: Path, new: Path, config: Path, overrides: Sequence[str], folder: Path) -> dict[str, Any]:
    """Train a configuration for some updates by both commands, and compare losses and weights."""
    settings = (
        *(f"train.steps={DEMO_UPDATES}", "logging.every=1", "train.threads=1", "train.device=cpu"),
        *("logging.tensorboard=false", "logging.pictures=false", "logging.samples=0"),
    )
    losses, weights = [], []
    for name, commit in (("old", old), ("new", new)):
        run = folder / f"demo-{name}"
        run_translate(commit, folder, "train", config, *settings, *overrides, "--run", run, "--no-test", threads=1)
        losses.append(read_losses(run))
        weights.append(read_weights(run, load_current_name(new)))
    pairs = [distance(np.array(one), np.array(other)) for one, other in zip(*losses, strict=True)]
    if len(pairs) != DEMO_UPDATES:
        raise AssertionError(f"{len(pairs)} losses of {DEMO_UPDATES} updates")
    by_name = {
        name: distance(weights[0][name], weights[1][name]) if name in weights[0] and name in weights[1] else WORST
        for name in weights[0].keys() | weights[1].keys()
    }
    worst = max(by_name, key=lambda name: by_name[name])
    return {
        "losses": losses,
        "loss_differences": pairs,
        "tolerance": DEMO_TOLERANCE,
        "largest_loss": max(pairs),
        "largest_weight": by_name[worst],
        "weight": worst,
    }


def read_losses(run: Path) -> list[float]:
    """The loss of every update of a run that has told each."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"]


def read_weights(run: Path, current_name: Callable[[str], str]) -> dict[str, Array]:
    """The weights of a run's newest checkpoint by their present names."""
    from safetensors.numpy import load_file

    newest = max((run / "checkpoints").glob("step-*/model.safetensors"))
    return {current_name(name): value.astype(np.float64) for name, value in load_file(newest).items()}


# -- the program -------------------------------------------------------------------------------------------------------


def show(result: dict[str, Any]) -> None:
    """The result as text."""
    print(
        f"{result['models']} models, {result['arrays']} losses and gradients, {result['numbers']:,} numbers; "
        f"largest difference {result['largest']:.1e} (allowed {result['tolerance']:.0e})"
    )
    for name, size in result["largest_by_value"].items():
        print(f"  {name}: {size:.1e}")
    for name in result["not_in_both"]:
        print(f"  not in both: {name}")
    print("largest:")
    for one in result["differences"]:
        print(f"  {one['size']:.1e}  {one['name']}  [{one['form']}]  {one['model']}")
    demo = result.get("demo")
    if demo is not None:
        print(f"\nupdate  {'loss of OLD':>14}  {'of NEW':>14}  difference (allowed {demo['tolerance']:.0e})")
        for update, (before, after, size) in enumerate(zip(*demo["losses"], demo["loss_differences"], strict=True)):
            print(f"{update + 1:6}  {before:14.9f}  {after:14.9f}  {size:.1e}")
        print(f"losses: {demo['largest_loss']:.1e}; weights: {demo['largest_weight']:.1e} ({demo['weight']})")


def differs(result: dict[str, Any]) -> bool:
    """Whether anything differs by more than it may, or nothing was compared."""
    demo = result.get("demo")
    too_far = demo is not None and max(demo["largest_loss"], demo["largest_weight"]) > demo["tolerance"]
    return result["models"] == 0 or result["largest"] > result["tolerance"] or too_far


def worker(what: str, *paths: str) -> int:
    """A process of `compare_models`, which runs with the code of one commit."""
    folders = list(map(Path, paths))
    if what == "cases":
        write_cases(*folders)
    else:
        write_results(*folders)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--worker"]:
        return worker(*given[1:])
    from comparing import MemberFailed

    from translate.errors import UserError

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", help="folder of a checkout, or a revision")
    parser.add_argument("new", help="the same, of the code whose covering array and names are used")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--only", default="", metavar="TEXT", help="only models whose settings have this text in them")
    parser.add_argument("--demo", nargs="+", metavar=("CONFIG", "KEY=VALUE"), help="also train this configuration")
    options = parser.parse_args(given)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="compare-") as temporary,
            checked_out(options.old) as old,
            checked_out(options.new) as new,
        ):
            result = compare_models(old, new, options.only, Path(temporary))
            if options.demo:
                config, *overrides = options.demo
                result["demo"] = compare_demo(old, new, Path(config).resolve(), overrides, Path(temporary))
    except (UserError, MemberFailed) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(result))
    else:
        show(result)
    return int(differs(result))


if __name__ == "__main__":
    sys.exit(main())
