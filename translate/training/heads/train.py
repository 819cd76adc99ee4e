"""Train an alignment head for each of two runs on a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from translate.alignment.formats import Link, read_alignments
from translate.decoding.aligner import check_attention, choose_shift
from translate.decoding.translator import Translator
from translate.errors import DataError, Stopped
from translate.run.directory import Run
from translate.run.heads import head_path, save_head
from translate.training.heads.loop import HeadTrainer, Validation
from translate.training.heads.pairs import LEAST_FOR_HEADS, HeadPairs, read_text
from translate.training.heads.settings import HeadSettings
from translate.training.logging import Reporter
from translate.training.signals import StopSignals

MOST_HELD_OUT = 500  # pairs; a tenth of a small text


@dataclass(frozen=True)
class HeadFiles:
    """Files to train heads on; without them, the pairs that the run was trained on."""

    source: Path | None = None
    target: Path | None = None
    links: Path | None = None


def train_heads(
    forward: Translator,
    backward: Translator,
    runs: tuple[Run, Run],
    files: HeadFiles,
    settings: HeadSettings,
    shift: int | None,
    reporter: Reporter,
) -> Validation:
    """Train the heads of two runs and save each in its run; a `shift` of None is chosen by agreement."""
    for translator in (forward, backward):
        check_attention(translator)
    checkpoints = [run.best() for run in runs]
    config = runs[0].config()
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    with StopSignals() as signals, runs[0].lock(), runs[1].lock():
        text = read_text(runs[0], files.source, files.target, settings.pairs, settings.seed)
        links = None if files.links is None else _read_links(files.links, text.lines)
        if links is not None:  # given links number words between spaces
            settings = replace(settings, align=replace(settings.align, source_spans=False, target_spans=False))
        max_length = config.data.max_length or forward.search.max_source
        pairs = HeadPairs(forward, backward, text, settings.align, max_length, links)
        if len(pairs) < LEAST_FOR_HEADS:
            raise DataError(
                f"{len(pairs)} pairs to learn from, {pairs.left_out} left out as empty or over {max_length} pieces; "
                f"at least {LEAST_FOR_HEADS} are needed. Give more text with --source and --target."
            )
        mixed = np.random.Generator(np.random.PCG64([settings.seed, len(pairs)])).permutation(len(pairs))
        num_held_out = min(MOST_HELD_OUT, len(pairs) // 10)
        held_out, train = pairs.part(mixed[:num_held_out]), pairs.part(mixed[num_held_out:])
        reporter.say(f"{len(train):,} pairs to learn from, {len(held_out):,} held out, {pairs.left_out:,} left out.")
        if links is None:
            settings = _with_shift(forward, backward, held_out, settings, shift, reporter)
        trainer = HeadTrainer(forward, backward, train, held_out, settings, reporter, signals)
        signals.can_save = True
        found = trainer.fit()
        note = {
            "settings": asdict(settings),
            "updates": trainer.step,
            "held_out": asdict(found),
            "links": None if files.links is None else files.links.name,
        }
        for run, checkpoint, head in zip(runs, checkpoints, trainer.heads.both, strict=True):
            save_head(run, head, checkpoint, note)
        if signals.received is not None:
            raise Stopped(
                signals.received,
                f"Stopped after update {trainer.step}; the best heads so far are saved in "
                f"{head_path(runs[0])} and {head_path(runs[1])}.",
            )
    return found


def _with_shift(
    forward: Translator,
    backward: Translator,
    held_out: HeadPairs,
    settings: HeadSettings,
    shift: int | None,
    reporter: Reporter,
) -> HeadSettings:
    if shift is None:
        text = held_out.text
        shift, found = choose_shift(forward, backward, text.sources, text.targets, settings.align)
        shown = ", ".join(f"{k}: {found[k]:.3f}" for k in sorted(found))
        reporter.say(f"shift {shift}, by agreement of both runs' attention on held-out pairs ({shown})")
    extraction = replace(settings.align.extraction, shift=shift)
    return replace(settings, align=replace(settings.align, extraction=extraction))


def _read_links(path: Path, lines: Sequence[int]) -> Mapping[int, Sequence[Link]]:
    """The given links of the lines of a text."""
    last = max(lines, default=0)
    found = read_alignments(path).filled(last).sentences
    if len(found) < last:
        raise DataError(
            f"--links {path} has {len(found):,} lines, but the text has a pair at line {last:,}: line N of each must "
            "belong together, empty where there is no link."
        )
    return {line: sorted(found[line - 1].possible) for line in lines}
