"""Translators and runs with random weights and real tokenizers: quick to make, because nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.decoding.decoding_models import make_model
from translate.config import SearchConfig
from translate.config.load import check_config
from translate.decoding.translator import Translator
from translate.models.seq2seq import Seq2Seq
from translate.run.directory import Run
from translate.text.tokenizer import EOS, Tokenizer, train_tokenizer

SOURCE_LINES = ["the small dog sleeps", "a man sees the house", "12 cats hear a bird"]
TARGET_LINES = ["le petit chien dort", "un homme voit la maison", "12 chats entendent un oiseau et 34 hommes"]


@cache
def word_tokenizers() -> tuple[Tokenizer, Tokenizer]:
    """Tokenizers of different sizes whose pieces are words."""
    settings = check_config(settings_of_run(), "test").tokenizer.model_copy(update={"kind": "word", "vocabulary": 40})
    models = (train_tokenizer(lines * 3, settings, 1, lambda _: None) for lines in (SOURCE_LINES, TARGET_LINES))
    source, target = map(Tokenizer, models)
    return source, target


def random_translator(
    decoder: str = "bahdanau", others: Sequence[str] = (), seed: int = 1, ending: float = 3.0, **search: Any
) -> Translator:
    """One model in float64, or several with seeds of their own."""
    source, target = word_tokenizers()
    first, *rest = (
        make_model(kind, target.size, seed + i, ending, source.size) for i, kind in enumerate((decoder, *others))
    )
    settings = SearchConfig.model_validate({"beam": 3, "length_ratio": 1.0, "length_extra": 4, **search})
    return Translator(first, source, target, settings, others=rest)


def reverse_translator(decoder: str = "bahdanau", seed: int = 7, **search: Any) -> Translator:
    """A model of the other direction."""
    source, target = word_tokenizers()
    settings = SearchConfig.model_validate({"beam": 3, "length_ratio": 1.0, "length_extra": 4, **search})
    return Translator(make_model(decoder, source.size, seed, 3.0, target.size), target, source, settings)


def settings_of_run(source: str = "en", target: str = "fr", decoder: str = "bahdanau") -> dict[str, Any]:
    """The settings of a tiny run."""
    return {
        "data": {"folder": "data", "source_lang": source, "target_lang": target},
        "model": {
            "embedding": {"width": 6},
            "encoder": {"width": 5},
            "attention": {"width": 4},
            "decoder": {"kind": decoder, "width": 7},
        },
        "train": {"steps": 1},
        "search": {"beam": 2, "length_ratio": 1.0, "length_extra": 3},
    }


def write_run(path: Path, seed: int = 1, decoder: str = "bahdanau", source: str = "en", target: str = "fr") -> Path:
    """A run with one checkpoint and test data of its own."""
    tokenizers = word_tokenizers() if source == "en" else word_tokenizers()[::-1]
    config = check_config(settings_of_run(source, target, decoder), "test")
    torch.manual_seed(seed)
    model = Seq2Seq(config.model, tokenizers[0].size, tokenizers[1].size, config.data.max_length)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
        model.decoder.output.vocabulary.bias[EOS] += 2.0
    run = Run(path)
    run.create(config, *tokenizers)
    weights = {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}
    checkpoint = run.save("step-00000001", weights, {}, {"step": 1, "seconds": 0.5, "last_validated": 1})
    run.point("best", checkpoint)
    (path / "data").mkdir()
    sides = (SOURCE_LINES, TARGET_LINES) if source == "en" else (TARGET_LINES, SOURCE_LINES)
    for name, lines in zip(("source", "target"), sides, strict=True):
        (path / "data" / f"test.{name}").write_text("".join(line + "\n" for line in lines))
    return path
