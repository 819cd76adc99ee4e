"""Starting from existing weights: those of another run, or word vectors."""

from __future__ import annotations

from collections.abc import Callable

import torch

from translate.models.seq2seq import Seq2Seq
from translate.run.checkpoint import check_fit, fill
from translate.training.prepare import TrainingInputs, other_run, start_vectors

Say = Callable[[str], None]


def start_from_other_run(model: Seq2Seq, inputs: TrainingInputs, say: Say) -> None:
    """Fill the model with the best weights of `train.init_from`, if it is set."""
    init_from = inputs.config.train.init_from
    if init_from is None:
        return
    other = other_run(init_from)
    weights = other.best().weights()
    check_fit(model, weights, where=str(other.path))
    fill(model, weights)
    say(f"Starting from the weights of {other.path}.")


def start_from_vectors(model: Seq2Seq, inputs: TrainingInputs, say: Say) -> None:
    """Fill the embeddings with the vectors of `train.source_embeddings` and `train.target_embeddings`."""
    tables = {"source": model.src_embed.table, "target": model.decoder.embed.table}
    for side, file, vectors in start_vectors(inputs.config, inputs.source, inputs.target):
        table = tables[side]
        with torch.no_grad():
            for index, vector in vectors.items():
                table.weight[index] = torch.from_numpy(vector)
        say(f"{side} embeddings: {len(vectors):,} of {len(table.weight):,} pieces found in {file}")
