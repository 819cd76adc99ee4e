"""Rules across settings: combinations without meaning are refused, and the message says what to change."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from translate.config.declarations import OPTIONAL, WITHOUT_EFFECT, either, supports
from translate.config.members import DECODERS, ENCODERS, MEMBERS, SCOPES, SCORES, SELECTIONS, SUMMARIES

if TYPE_CHECKING:
    from translate.config.settings import (
        AttentionConfig,
        Config,
        DataConfig,
        EncoderConfig,
        ModelConfig,
        SearchConfig,
        TokenizerConfig,
        TrainConfig,
    )


def check_data(data: DataConfig) -> None:
    if not data.train_stems or len(set(data.train_stems)) < len(data.train_stems):
        raise ValueError(
            "train must name at least one corpus, and each only once; to see a corpus more often, set data.weights"
        )
    if data.weights is not None and len(data.weights) != len(data.train_stems):
        raise ValueError(f"{len(data.weights)} weights for {len(data.train_stems)} corpora in train; give one for each")
    if data.columns[0] == data.columns[1]:
        raise ValueError("columns must be two different numbers")


def check_tokenizer(tokenizer: TokenizerConfig) -> None:
    if tokenizer.spells_bytes and tokenizer.vocabulary < 300:
        raise ValueError("vocabulary must be at least 300 with byte_fallback, which takes 256 pieces of it")
    if tokenizer.nbest > 1 and tokenizer.kind != "unigram":
        raise ValueError(
            f"nbest > 1 needs kind = 'unigram': '{tokenizer.kind}' has one segmentation of a sentence only"
        )


def check_encoder(encoder: EncoderConfig) -> None:
    if encoder.residual and encoder.layers == 1:
        raise ValueError("residual = true has an effect from the second layer on; set layers >= 2")


def check_attention(attention: AttentionConfig) -> None:
    if attention.per_feature and attention.heads > 1:
        raise ValueError("per_feature = true gives every dimension a head of its own; set heads = 1")
    if SCOPES[attention.scope].blends and SELECTIONS[attention.selection].takes_one_position:
        raise ValueError(
            f"scope = '{attention.scope}' blends two sets of weights, "
            f"selection = '{attention.selection}' takes one position; "
            f"use {_selections_of_weights()}, or another scope"
        )


def check_model(model: ModelConfig) -> None:
    _check_supported(model)
    if not model.attends:
        _check_without_attention(model)
        return
    kind, score = model.decoder.kind, model.attention.score
    scores = DECODERS[kind].scores
    if scores is not None and score not in scores:
        why = DECODERS[kind].reasons.get("score", f"works with {either(scores)} only")
        raise ValueError(
            f"decoder.kind = '{kind}' {why}: attention.score = '{score}' does not fit; "
            f"use attention.score = {either(scores)}"
        )
    if model.attention.heads > 1:
        _check_heads(model)


def _check_supported(model: ModelConfig) -> None:
    """An optional setting that a member does not support stays at its default."""
    for setting, members in MEMBERS.items():
        member = members[value_of(model, setting)]
        for option in OPTIONAL[setting]:
            value, default = value_of(model, option), _default(model, option)
            if value == default or option in WITHOUT_EFFECT or supports(member, option):
                continue
            why = member.reasons.get(option.rpartition(".")[2], "does not support it")
            others = [name for name, other in members.items() if supports(other, option)]
            raise ValueError(
                f"{option} = {_as_toml(value)}: {setting} = '{member.name}' {why}; set {option} = {_as_toml(default)}"
                + (f", or use {setting} = {either(others)}" if others else "")
            )


def value_of(model: ModelConfig, setting: str) -> Any:
    return reduce(getattr, setting.split("."), model)


def _default(model: ModelConfig, setting: str) -> Any:
    section, name = setting.split(".")
    return type(getattr(model, section)).model_fields[name].default


def _as_toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _selections_of_weights() -> str:
    return either(name for name, selection in SELECTIONS.items() if not selection.takes_one_position)


def _check_without_attention(model: ModelConfig) -> None:
    kind, summary = model.decoder.kind, SUMMARIES[model.encoder.summary]
    if not summary.informs:
        others = either(name for name, other in SUMMARIES.items() if other.informs)
        raise ValueError(
            f"decoder.kind = '{kind}' reads only the summary of the source, and encoder.summary = "
            f"'{summary.name}' is empty; use {others}"
        )
    if model.decoder.copy:
        raise ValueError(
            f"decoder.copy = true copies what attention points to, and decoder.kind = '{kind}' has no attention; "
            "use another decoder"
        )
    if model.encoder.self_attention and not summary.reads_memory:
        others = either(name for name, other in SUMMARIES.items() if other.reads_memory)
        raise ValueError(
            f"encoder.self_attention = true works on the memory, which decoder.kind = '{kind}' does not read; "
            f"use encoder.summary = {others}, or another decoder"
        )


def _check_heads(model: ModelConfig) -> None:
    """Heads share the widths of values, queries and keys evenly."""
    heads, multiple = model.attention.heads, ENCODERS[model.encoder.kind].width_multiple
    for name in SCORES[model.attention.score].width_divided_by_heads:
        width = value_of(model, name)
        if width % heads:
            memory = "the memory's width encoder.width" + f" × {multiple}" * (multiple > 1)
            raise ValueError(
                f"attention.heads = {heads} does not divide {memory if name == 'encoder.output_width' else name} = "
                f"{width}, which attention.score = '{model.attention.score}' splits; take a multiple of {heads}"
            )


def check_train(train: TrainConfig) -> None:
    if train.steps is None and train.minutes is None:
        raise ValueError("give 'steps' or 'minutes', so that training has an end")
    if train.average == 1:
        raise ValueError("average = 1 averages nothing: give 0 or at least 2")
    if train.momentum and train.optimizer != "sgd":
        raise ValueError(f"momentum belongs to optimizer = 'sgd'; '{train.optimizer}' has its own averages")


def check_together(config: Config) -> None:
    if config.model.embedding.tied == "three" and not config.tokenizer.joint:
        raise ValueError(
            "model.embedding.tied = 'three' shares the source embeddings with the target's, which needs "
            "tokenizer.joint = true; use 'two' otherwise"
        )
    if config.model.decoder.copy and not config.tokenizer.joint:
        raise ValueError(
            "model.decoder.copy = true writes source pieces into the target, which needs one vocabulary for both; "
            "set tokenizer.joint = true"
        )
    if config.train.guided.links is not None:
        _check_guided(config)
    check_search(config.search)
    score = SCORES[config.model.attention.score]
    if score.needs_max_length and config.model.attends and not config.data.max_length:
        raise ValueError(
            f"model.attention.score = '{score.name}' has weights for each position, whose number is data.max_length; "
            "set data.max_length"
        )


def check_search(search: SearchConfig, required: bool = False) -> None:
    """Refuse search settings that do not work together, with `required` words or without."""
    beam, groups, required = search.beam, search.groups, required or search.keep_entities
    if beam % groups:
        raise ValueError(
            f"search.groups = {groups} does not divide search.beam = {beam}, and all groups are of one size; "
            f"set search.beam (--beam) to a multiple of {groups}"
        )
    if required and search.sample:
        raise ValueError(
            "required words (also those of search.keep_entities) need beam search; leave out search.sample (--sample)"
        )
    if required and groups > 1:
        raise ValueError(
            f"search.groups = {groups} and required words (also those of search.keep_entities) both divide the beam; "
            "set search.groups = 1 or leave out the required words"
        )


def _check_guided(config: Config) -> None:
    if not config.model.attends:
        raise ValueError(
            f"train.guided.links teaches attention, and decoder.kind = '{config.model.decoder.kind}' has no attention; "
            "use another decoder"
        )
    selection = SELECTIONS[config.model.attention.selection]
    if selection.takes_one_position:
        raise ValueError(
            f"train.guided.links teaches weights, and selection = '{selection.name}' takes one position; "
            f"use {_selections_of_weights()}"
        )
