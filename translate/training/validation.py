"""Scores on the validation set, by which checkpoints are compared, and sample translations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from translate.data.batches import collate, token_batches
from translate.decoding.translator import Translation, Translator
from translate.device import Precision
from translate.errors import UserError
from translate.evaluation.metrics import quick_scores
from translate.models.seq2seq import Seq2Seq
from translate.run.sealed_files import write_file
from translate.training.logging import Reporter
from translate.training.loss import sequence_loss
from translate.training.prepare import TrainingInputs
from translate.training.signals import StopSignals

WORST = -1e30  # in place of a score that is not finite: JSON has no infinity
TRANSLATED_TOGETHER = 256  # lines; signals are checked between two such parts


class Interrupted(Exception):
    """A signal came in the middle of a validation."""


@dataclass(frozen=True)
class Validated:
    """The result of a validation."""

    scores: dict[str, float]
    """The loss at full teacher forcing, BLEU and chrF of greedy translations."""
    translations: list[Translation]
    score: float
    """By which checkpoints are compared: greater is better."""

    def __str__(self) -> str:
        scores = self.scores
        return f"loss {scores['loss']:.3f}, BLEU {scores['bleu']:.1f}, chrF {scores['chrf']:.1f}"


class Validation:
    """The validation set and the model that is measured on it."""

    def __init__(
        self, model: Seq2Seq, inputs: TrainingInputs, precision: Precision, device: torch.device, signals: StopSignals
    ) -> None:
        config = inputs.config
        greedily = config.search.model_copy(update={"beam": 1, "groups": 1, "sample": False, "int8": False})
        self.model, self.inputs, self.precision, self.device = model, inputs, precision, device
        self.translator = Translator(model, inputs.source, inputs.target, greedily, device)
        self.settings, self.tgt_lang = config.train, config.data.target_lang
        self._signals = signals

    def run(self) -> Validated:
        """Measure the model as it is."""
        self.model.eval()
        translations = []
        lines = self.inputs.valid_sources
        for begin in range(0, len(lines), TRANSLATED_TOGETHER):
            together = lines[begin : begin + TRANSLATED_TOGETHER]
            translations += [best[0] for best in self.translator.translate(together)]
            self._check_stop()
        texts = [translation.text for translation in translations]
        scores = {"loss": self._loss(), **quick_scores(texts, self.inputs.valid_references, self.tgt_lang)}
        return Validated(scores, translations, self._judge(scores))

    @torch.inference_mode()
    def _loss(self) -> float:
        valid = self.inputs.valid
        longest = np.maximum(valid.src_lengths, valid.tgt_lengths)
        total, num_tokens = 0.0, 0
        for rows in token_batches(longest, self.settings.batch_tokens, np.argsort(longest, kind="stable")):
            batch = collate(valid, rows).to(self.device)
            with self.precision.autocast():
                decoded, source = self.model(batch.src, batch.src_valid, batch.src_lengths, batch.tgt_in)
                total += float(sequence_loss(self.model, decoded, source, batch.tgt_out, batch.tgt_valid, 0.0).nll)
            num_tokens += batch.num_tokens
            self._check_stop()
        return total / num_tokens

    def _judge(self, scores: Mapping[str, float]) -> float:
        """The score by `train.metric`, greater is better; `WORST` if it or the loss is not finite."""
        value = scores[self.settings.metric]
        if not np.isfinite(value) or not np.isfinite(scores["loss"]):
            return WORST
        return -value if self.settings.metric == "loss" else value

    def _check_stop(self) -> None:
        if self._signals.received is not None:
            raise Interrupted

    def show_samples(self, found: Validated, step: int, reporter: Reporter, tensorboard: Any) -> None:
        """Write the first translations with their references, and draw their attention."""
        inputs, logging = self.inputs, self.inputs.config.logging
        count = min(logging.samples, len(found.translations))
        if not count:
            return
        rows = [
            f"  source    {inputs.valid_sources[i]}\n  written   {found.translations[i].text}\n"
            f"  reference {inputs.valid_references[i]}\n"
            for i in range(count)
        ]
        folder = inputs.run.path / "samples"
        folder.mkdir(exist_ok=True)
        write_file(folder / f"step-{step:08d}.txt", "\n".join(rows).encode())
        reporter.say(rows[0].rstrip("\n"))
        if logging.pictures:
            from translate.training.samples import draw_samples  # matplotlib takes a second to load

            shown = inputs.valid_sources[:count], found.translations[:count]
            try:
                draw_samples(folder, step, self.translator, *shown, tensorboard)
            except UserError as error:  # training goes on without the picture
                reporter.say(f"Warning: {error}")
