"""Every setting, its default and its check, once.

The docstring under a setting is its help text: `translate init` writes it into new configuration files. Nothing here
imports torch, so reading a configuration is quick.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from translate.errors import ConfigError

HUB_PREFIX = "hub:"
_PATHS = (
    *(("data", "folder"), ("train", "init_from"), ("train", "source_embeddings"), ("train", "target_embeddings")),
    ("train", "guided", "links"),
)
# pydantic's own old `copy` has long been `model_copy`; the setting of that name may take its place.
warnings.filterwarnings("ignore", message='Field name "copy" in "DecoderConfig" shadows')
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
Weight = Annotated[float, Field(gt=0.0, le=1000.0)]
Column = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """What all sections share: unknown keys are refused, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class DataConfig(Section):
    """Where the sentence pairs are, and which of them are used."""

    folder: str
    """Folder of the corpus, relative to this file; or "hub:owner/name" for a data set of the Hugging Face hub."""
    train: str | list[str] = "train"
    """Stem of the training files: "train" means train.L1 and train.L2, or train.tsv, train.jsonl, train.parquet.
    A list of stems, as in ["train", "back"], trains on all of them."""
    weights: list[Weight] | None = None
    """How often each corpus of a list is seen in an epoch: 2 is twice, 0.5 another half each time. Once if left out."""
    valid: str = "valid"
    """Stem of the validation files."""
    test: str = "test"
    """Stem of the test files."""
    source_lang: str
    """Language translated from: the ending of the plain files, the column of the others."""
    target_lang: str
    """Language translated into."""
    columns: tuple[Column, Column] = (1, 2)
    """tsv: which columns hold source and target, counted from 1."""
    max_length: int = Field(128, ge=0)
    """Longest sentence in pieces, on either side; longer training pairs are left out and counted. 0 means no limit."""
    max_ratio: float = Field(0.0, ge=0.0)
    """Greatest ratio of the two lengths in pieces; pairs beyond it are left out and counted. 0 means no limit."""

    @property
    def direction(self) -> tuple[str, str]:
        """The languages translated from and into."""
        return self.source_lang, self.target_lang

    @property
    def train_stems(self) -> list[str]:
        """All training corpora."""
        return [self.train] if isinstance(self.train, str) else self.train

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        if not self.train_stems or len(set(self.train_stems)) < len(self.train_stems):
            raise ValueError("train must name at least one corpus, and none twice; weights say how often each is seen")
        if self.weights is not None and len(self.weights) != len(self.train_stems):
            raise ValueError(
                f"{len(self.weights)} weights for {len(self.train_stems)} corpora in train; give one for each"
            )
        if self.columns[0] == self.columns[1]:
            raise ValueError("columns must be two different ones")
        return self


class TokenizerConfig(Section):
    """How text becomes pieces."""

    kind: Literal["unigram", "bpe", "word", "char"] = "unigram"
    """What a piece is: a subword by one of two models, a whole word between spaces, a character."""
    vocabulary: int = Field(8000, ge=16)
    """Most pieces a vocabulary may have; a small corpus gets fewer."""
    joint: bool = True
    """One vocabulary for both languages."""
    byte_fallback: bool = True
    """unigram, bpe, char: spell characters that are not in the vocabulary as bytes, so that no text is unknown."""
    normalization: Literal["identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"] = "identity"
    """Unicode normalisation before segmentation; "identity" changes nothing."""
    nbest: int = Field(1, ge=1, le=512)
    """unigram: in each epoch, spell a sentence in one of its so many likeliest ways (Kudo 2018); 1 is off."""
    nbest_alpha: float = Field(0.2, ge=0.0)
    """nbest: how much likelier spellings are preferred; 0 not at all."""

    @property
    def spells_bytes(self) -> bool:
        """Whether there are pieces for bytes: a word that is not in a vocabulary of words stays unknown."""
        return self.byte_fallback and self.kind != "word"

    @model_validator(mode="after")
    def _room_for_bytes(self) -> Self:
        if self.spells_bytes and self.vocabulary < 300:
            raise ValueError("vocabulary must be at least 300 with byte_fallback, which takes 256 pieces of it")
        if self.nbest > 1 and self.kind != "unigram":
            raise ValueError(f"nbest > 1 needs kind = 'unigram': '{self.kind}' knows one way to spell a sentence only")
        return self


class EmbeddingConfig(Section):
    """The vectors of the pieces."""

    width: int = Field(256, ge=1)
    """Width of the embeddings."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Dropout on the embeddings of both sides."""
    tied: Literal["none", "two", "three"] = "two"
    """Which matrices are one: "two" target embeddings and output layer, "three" also the source embeddings."""


class EncoderConfig(Section):
    """What reads the source."""

    kind: Literal["gru", "bigru", "lstm", "bilstm"] = "bigru"
    """Recurrent network; `translate zoo` explains each."""
    width: int = Field(256, ge=1)
    """Width of the state, in each direction."""
    layers: int = Field(1, ge=1)
    """Number of layers."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Dropout between layers and on the memory."""
    variational: bool = False
    """Draw dropout once per sentence instead of once per position, and drop in the recurrence too."""
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of source pieces that the encoder does not get to see while it learns."""
    residual: bool = False
    """Each layer after the first adds to what it reads instead of replacing it."""
    layer_norm: bool = False
    """Layer normalisation inside the recurrence."""
    self_attention: bool = False
    """One residual layer of self-attention over the memory."""
    reverse: bool = False
    """gru, lstm: read the source from its end, so that its first words are the freshest."""
    summary: Literal["last", "mean", "attention", "zero"] = "last"
    """The one vector of the source that starts the decoder."""

    @property
    def bidirectional(self) -> bool:
        return self.kind in ("bigru", "bilstm")

    @property
    def output_width(self) -> int:
        """Width of the memory: all directions."""
        return self.width * (2 if self.bidirectional else 1)

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        if self.reverse and self.bidirectional:
            raise ValueError(f"reverse = true: '{self.kind}' reads both ways already; use kind = 'gru' or 'lstm'")
        if self.residual and self.layers == 1:
            raise ValueError("residual = true adds what a layer reads to what the layer below wrote; set layers >= 2")
        return self


class AttentionConfig(Section):
    """Where the decoder looks."""

    score: Literal["additive", "general", "dot", "scaled_dot", "linear", "dual", "cosine", "location", "static"] = (
        "additive"
    )
    """How well a query fits a position; `translate zoo` shows the formulas."""
    scope: Literal["global", "local_m", "local_p", "expanded", "hybrid"] = "global"
    """Which positions compete."""
    selection: Literal["soft", "sparsemax", "hard_gumbel", "hard_reinforce"] = "soft"
    """How scores become weights."""
    width: int = Field(256, ge=1)
    """Width of queries and keys inside the score, where the formula leaves it free."""
    window: int = Field(5, ge=1)
    """Half-width of the window around the centre, for every scope but global."""
    heads: int = Field(1, ge=1)
    """Looks side by side, each with its share of the width."""
    hops: int = Field(1, ge=1, le=16)
    """Looks one after the other: what was found joins the query and asks again."""
    per_feature: bool = False
    """One set of weights for each dimension of the memory instead of one for all."""
    coverage: bool = False
    """Tell the score how much each position has been looked at already."""
    coverage_loss: float = Field(0.1, ge=0.0)
    """coverage: weight of the loss on looking again where one has looked."""
    temperature: float = Field(1.0, gt=0.0)
    """hard_gumbel: temperature of the draw at the start."""
    temperature_end: float = Field(0.3, gt=0.0)
    """hard_gumbel: temperature at the end; it falls geometrically."""
    entropy: float = Field(0.01, ge=0.0)
    """hard_reinforce: weight of the bonus for keeping the draw open."""

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        if self.per_feature and self.heads > 1:
            raise ValueError("per_feature = true gives every dimension a head of its own; set heads = 1")
        if self.per_feature and self.score == "location":
            raise ValueError(
                "per_feature = true with score = 'location' needs a matrix of positions for every dimension; "
                "use another score"
            )
        if self.per_feature and self.selection == "hard_reinforce":
            raise ValueError(
                "per_feature = true with selection = 'hard_reinforce' draws once for every dimension, which one reward "
                "cannot teach; use 'soft', 'sparsemax' or 'hard_gumbel'"
            )
        if self.scope == "hybrid" and self.selection.startswith("hard_"):
            raise ValueError(
                f"scope = 'hybrid' blends two looks, selection = '{self.selection}' takes one position; "
                "use 'soft' or 'sparsemax', or another scope"
            )
        if self.hops > 1 and self.score in ("static", "linear"):
            raise ValueError(
                f"hops > 1 asks again with another query, which score = '{self.score}' does not hear; set hops = 1"
            )
        return self


class DecoderConfig(Section):
    """What writes the target."""

    kind: Literal["bahdanau", "luong", "conditional", "tutorial", "plain"] = "bahdanau"
    """Where attention sits in the recurrence; `translate zoo` explains each."""
    cell: Literal["gru", "lstm"] = "gru"
    """Recurrent unit."""
    width: int = Field(256, ge=1)
    """Width of the state."""
    layers: int = Field(1, ge=1)
    """Number of layers; the top one asks, the context enters the first."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Dropout between layers and before the output layer."""
    variational: bool = False
    """Draw dropout between layers once per sentence, and drop in the recurrence too."""
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of the words read back that the decoder does not get to see while it learns."""
    layer_norm: bool = False
    """Layer normalisation inside the recurrence."""
    input_feeding: bool = True
    """luong: feed the attentional vector into the next step. Without it training needs no loop."""
    copy: bool = False  # type: ignore[assignment]
    """Mix in a pointer that copies source pieces where attention looks; needs a joint vocabulary."""


class ModelConfig(Section):
    """The network: any encoder × decoder × score × scope × selection."""

    embedding: EmbeddingConfig = EmbeddingConfig()
    encoder: EncoderConfig = EncoderConfig()
    attention: AttentionConfig = AttentionConfig()
    decoder: DecoderConfig = DecoderConfig()

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        kind = self.decoder.kind
        if kind == "plain":
            self._check_plain()
        elif kind == "tutorial" and self.attention.score != "location":
            raise ValueError(
                f"decoder.kind = 'tutorial' scores positions, not states: attention.score = '{self.attention.score}' "
                "has no place in it; use attention.score = 'location'"
            )
        elif self.attention.heads > 1:
            self._check_heads()
        return self

    def _check_plain(self) -> None:
        if self.encoder.summary == "zero":
            raise ValueError(
                "decoder.kind = 'plain' knows the source by its summary alone, and encoder.summary = 'zero' is none; "
                "use 'last', 'mean' or 'attention'"
            )
        if self.decoder.copy:
            raise ValueError(
                "decoder.copy = true copies what attention points to, and decoder.kind = 'plain' has none; "
                "use another decoder"
            )
        if self.encoder.self_attention and self.encoder.summary == "last":
            raise ValueError(
                "encoder.self_attention = true works on the memory, which decoder.kind = 'plain' does not read; "
                "use encoder.summary = 'mean' or 'attention', or another decoder"
            )

    def _check_heads(self) -> None:
        """Heads share the widths of values, queries and keys evenly."""
        heads, score = self.attention.heads, self.attention.score
        parts = {}
        if score != "dual":
            parts["the memory (encoder.width × directions)"] = self.encoder.output_width
        if score == "additive":
            parts["attention.width"] = self.attention.width
        elif score in ("dot", "scaled_dot", "general", "dual", "cosine"):
            parts["decoder.width"] = self.decoder.width
        for name, width in parts.items():
            if width % heads:
                raise ValueError(f"attention.heads = {heads} does not divide {name} = {width}")


class TeacherForcingConfig(Section):
    """How often the decoder is fed the reference instead of its own words while it learns (Bengio et al. 2015)."""

    ratio: float = Field(1.0, ge=0.0, le=1.0)
    """Share of reference tokens at the start. At 1 throughout, training takes the fast path."""
    schedule: Literal["constant", "linear", "inverse_sigmoid"] = "constant"
    """How the share moves from `ratio` to `end`."""
    end: float = Field(0.0, ge=0.0, le=1.0)
    """Share at the end of a linear or inverse sigmoid schedule."""
    unit: Literal["token", "sentence", "batch"] = "token"
    """What one coin decides."""
    feed: Literal["sample", "argmax"] = "sample"
    """The model's own word: drawn from its distribution, or the likeliest."""


class GuidedConfig(Section):
    """Given word links as a second thing to learn, by the attention (Chen et al. 2016)."""

    links: str | None = None
    """A file of links of the training pairs, line by line: Pharaoh (source-target, from 0), or any that `aer` reads."""
    weight: float = Field(0.5, gt=0.0)
    """How much a target token's links count beside its word."""


class TrainConfig(Section):
    """How the model learns."""

    steps: int | None = Field(None, ge=1)
    """Stop after this many updates."""
    minutes: float | None = Field(None, gt=0.0)
    """Stop after this many minutes of training and validation, over all resumes."""
    seed: int = Field(1, ge=0, lt=2**31)
    """The same seed on the same machine gives the same run."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; "auto" takes CUDA, then Apple's mps, then the CPU."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Arithmetic of the matrix products; "auto" is bf16 or fp16 on CUDA and fp32 elsewhere. On a CPU that multiplies in
    bf16 itself, as `translate doctor` tells, "bf16" trains faster than fp32."""
    compile: bool = False
    """Compile the decoder's step by torch.compile; costs a minute or two at the start and pays on GPUs, if at all."""
    threads: int = Field(0, ge=0)
    """CPU threads; 0 takes one for each core. It is part of the run: another number gives other roundings."""
    batch_tokens: int = Field(2000, ge=1)
    """Size of a batch: sentences times the longest of them, on the longer side."""
    accumulate: int = Field(1, ge=1)
    """Batches per update."""
    optimizer: Literal["adam", "adamw", "sgd", "adadelta"] = "adam"
    """Optimizer; sgd and adadelta want a learning rate near 1."""
    learning_rate: float = Field(1e-3, gt=0.0)
    """Peak learning rate."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """Decay of Adam's two averages."""
    momentum: float = Field(0.0, ge=0.0, lt=1.0)
    """sgd: share of the last step that is taken again."""
    rho: float = Field(0.95, ge=0.0, lt=1.0)
    """adadelta: decay of its averages."""
    epsilon: float | None = Field(None, gt=0.0)
    """What adam, adamw and adadelta add to their denominators; by default 1e-8, for adadelta 1e-6."""
    weight_decay: float = Field(0.0, ge=0.0)
    """Weight decay; decoupled for adamw."""
    schedule: Literal["constant", "inverse_sqrt", "cosine", "plateau", "halving"] = "cosine"
    """Learning rate after warm-up."""
    warmup: int = Field(200, ge=0)
    """Updates over which the learning rate rises."""
    plateau_patience: int = Field(2, ge=1)
    """plateau: validations without improvement before the learning rate falls."""
    plateau_factor: float = Field(0.5, gt=0.0, lt=1.0)
    """plateau: what the learning rate is multiplied with."""
    halve_after: int = Field(5000, ge=0)
    """halving: updates after which the learning rate is halved for the first time."""
    halve_every: int = Field(1000, ge=1)
    """halving: updates from one halving to the next."""
    clip: float = Field(1.0, ge=0.0)
    """Greatest norm of the gradient; 0 means no limit."""
    label_smoothing: float = Field(0.1, ge=0.0, lt=1.0)
    """Share of the probability that is spread over all pieces."""
    teacher_forcing: TeacherForcingConfig = TeacherForcingConfig()
    """Scheduled sampling."""
    guided: GuidedConfig = GuidedConfig()
    """Links that attention is taught."""
    valid_every: int = Field(500, ge=1)
    """Updates between validations; each is followed by a checkpoint."""
    metric: Literal["bleu", "chrf", "loss"] = "bleu"
    """What decides which checkpoint is best."""
    patience: int = Field(0, ge=0)
    """Stop after this many validations without improvement; 0 means never."""
    keep_last: int = Field(3, ge=1)
    """Checkpoints to keep besides the best."""
    average: int = Field(0, ge=0)
    """Average the weights of this many checkpoints at the end, and keep the average if it scores better; 0 is off."""
    average_of: Literal["last", "best"] = "last"
    """Which checkpoints are averaged."""
    ema: float = Field(0.0, ge=0.0, lt=1.0)
    """Decay of an exponential moving average of the weights, which is validated and saved; 0 is off, 0.999 usual."""
    init_from: str | None = None
    """A run whose best weights and tokenizers to start from."""
    source_embeddings: str | None = None
    """A file of word vectors (text of word2vec, fastText or GloVe) that the source embeddings start from."""
    target_embeddings: str | None = None
    """The same for the target embeddings; where `tied` makes both one table, these vectors come after the source's."""

    @model_validator(mode="after")
    def _an_end(self) -> Self:
        if self.steps is None and self.minutes is None:
            raise ValueError("give 'steps' or 'minutes', so that training has an end")
        if self.average == 1:
            raise ValueError("average = 1 averages nothing: give 0 or at least 2")
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(f"momentum belongs to optimizer = 'sgd'; '{self.optimizer}' has its own averages")
        return self


class SearchConfig(Section):
    """How translations are found."""

    beam: int = Field(5, ge=1)
    """Hypotheses kept per sentence; 1 is greedy."""
    normalization: Literal["none", "average", "wu"] = "average"
    """What a log probability is divided by: nothing, the length, or Wu et al. 2016's ((5 + length) / 6) ** alpha."""
    alpha: float = Field(0.6, ge=0.0)
    """The exponent of "wu"."""
    coverage_penalty: float = Field(0.0, ge=0.0)
    """Weight of a penalty on source pieces that attention has passed over (Wu et al. 2016, eq. 14); 0 is off."""
    stop: Literal["exact", "first", "full"] = "exact"
    """When a sentence is done: nothing open can win any more, as many have ended as are asked for, all have ended."""
    length_ratio: float = Field(2.0, gt=0.0)
    """Longest translation: length_ratio × source pieces + length_extra; lengths count the end symbol."""
    length_extra: int = Field(10, ge=1)
    """See length_ratio."""
    max_length: int = Field(0, ge=0)
    """Longest translation, whatever the source; 0 means no limit but the one above."""
    min_ratio: float = Field(0.0, ge=0.0)
    """Shortest translation: min_ratio × source pieces."""
    min_length: int = Field(0, ge=0)
    """Shortest translation, whatever the source."""
    no_repeat_ngram: int = Field(0, ge=0)
    """No row of so many pieces comes twice in a translation; 0 is off."""
    banned: tuple[str, ...] = ()
    """Words and phrases that are never written, however they are cut into pieces."""
    groups: int = Field(1, ge=1)
    """Parts of the beam, each of which avoids what those before it write (Vijayakumar et al. 2018)."""
    diversity: float = Field(0.5, ge=0.0)
    """groups: what a piece loses for each time a group before has chosen it at the same step."""
    sample: bool = False
    """Draw translations instead of searching for the likeliest."""
    temperature: float = Field(1.0, gt=0.0)
    """sample: log probabilities are divided by it; below 1 the draw is tamer."""
    top_k: int = Field(0, ge=0)
    """sample: only so many of the likeliest pieces are drawn from; 0 means all."""
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    """sample: only the likeliest pieces that together have this probability are drawn from."""
    seed: int = Field(1, ge=0, lt=2**31)
    """sample: the same seed, line number and step give the same draw, whatever the batch."""
    replace_unknown: bool = True
    """tokenizer.kind = "word": write the source word that attention points to in place of an unknown word."""
    keep_entities: bool = False
    """E-mail addresses, URLs and numbers of the source must come in the translation as they are."""
    int8: bool = False
    """Form the decoder's products in 8 bits: faster on a CPU, a little less exact."""
    max_source: int = Field(512, ge=1)
    """Source pieces beyond this are cut off, with a warning."""
    batch_tokens: int = Field(4000, ge=1)
    """Source positions decoded together, padding included."""


class LoggingConfig(Section):
    """What training tells about itself."""

    every: int = Field(50, ge=1)
    """Updates between two lines of metrics.jsonl."""
    tensorboard: bool = True
    """Write event files into the run's tensorboard/ folder."""
    samples: int = Field(3, ge=0)
    """Validation sentences whose translations are shown and kept under samples/."""
    pictures: bool = True
    """Draw the samples' attention as heat maps, also for TensorBoard, and learning curves at the end."""


class Config(Section):
    """A whole configuration."""

    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig
    search: SearchConfig = SearchConfig()
    logging: LoggingConfig = LoggingConfig()

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        if self.model.embedding.tied == "three" and not self.tokenizer.joint:
            raise ValueError(
                "model.embedding.tied = 'three' shares the source embeddings with the target's, which needs "
                "tokenizer.joint = true; use 'two' otherwise"
            )
        if self.model.decoder.copy and not self.tokenizer.joint:
            raise ValueError(
                "model.decoder.copy = true writes source pieces into the target, which needs one vocabulary for both; "
                "set tokenizer.joint = true"
            )
        if self.train.guided.links is not None:
            self._check_guided()
        self._check_search()
        located = self.model.attention.score == "location" and self.model.decoder.kind != "plain"
        if located and not self.data.max_length:
            raise ValueError(
                "model.attention.score = 'location' has one weight vector for each position and needs to know how many "
                "there are; set data.max_length"
            )
        return self

    def _check_search(self) -> None:
        """What only a search would refuse, when training is over."""
        beam, groups = self.search.beam, self.search.groups
        if beam % groups:
            raise ValueError(f"search.groups = {groups} does not divide search.beam = {beam}; take a multiple of it")
        if self.search.keep_entities and (groups > 1 or self.search.sample):
            other = "search.sample = true" if self.search.sample else f"search.groups = {groups}"
            raise ValueError(f"search.keep_entities = true searches for words, which {other} cannot; leave one out")

    def _check_guided(self) -> None:
        if self.model.decoder.kind == "plain":
            raise ValueError(
                "train.guided.links teaches attention, and decoder.kind = 'plain' has none; use another decoder"
            )
        if self.model.attention.selection.startswith("hard_"):
            raise ValueError(
                f"train.guided.links teaches weights, and selection = '{self.model.attention.selection}' takes one "
                "position; use 'soft' or 'sparsemax'"
            )


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML file, apply `key=value` overrides, and check the result.

    Paths in the file are relative to the file, paths in overrides to the current directory; both come out absolute.
    """
    try:
        with path.open("rb") as file:
            tree = tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file. `translate init DIR --source F --target F` writes one.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; give the configuration file in it.") from None
    except OSError as error:
        raise ConfigError(f"{path}: not readable: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: not valid TOML: {error}. Of two text files `translate init DIR --source F --target F` makes one."
        ) from None
    _make_absolute(tree, path.resolve().parent)
    given: dict[str, Any] = {}
    for override in overrides:
        _set_by_path(given, *_split_override(override))
    _make_absolute(given, Path.cwd())
    return check_config(_merge(tree, given), origin=str(path), overridden=_leaves(given))


def check_config(tree: Mapping[str, Any], origin: str, overridden: Sequence[str] = ()) -> Config:
    """Turn a plain tree of settings into a Config, or say which setting is wrong."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            key = ".".join(str(part) for part in problem["loc"])
            lines.append(f"{_where(key, problem, origin, overridden)}: {_explain(key, problem)}")
        raise ConfigError("\n".join(lines)) from None


def dump_config(config: Config) -> str:
    """The configuration as TOML that `load_config` reads back to an equal one."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def change_search(search: SearchConfig, **changes: Any) -> SearchConfig:
    """Search settings with some of them changed and checked again; those that are None stay."""
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return SearchConfig.model_validate({**search.model_dump(), **given})
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(["search", *map(str, problem["loc"])])
        raise ConfigError(_explain(key, problem)) from None


def override_search(search: SearchConfig, overrides: Sequence[str]) -> SearchConfig:
    """Search settings with `search.key=value` overrides from a command line."""
    given: dict[str, Any] = {}
    for override in overrides:
        key, value = _split_override(override)
        section, _, name = key.partition(".")
        if section != "search" or name not in SearchConfig.model_fields:
            close = difflib.get_close_matches(name, SearchConfig.model_fields, n=1) if section == "search" else []
            hint = f"Did you mean 'search.{close[0]}'?" if close else "It changes settings of [search] only."
            raise ConfigError(f"--set {override}: unknown setting. {hint}")
        given[name] = value
    return change_search(search, **given)


def reverse_config(config: Config) -> Config:
    """The same configuration for the other direction."""
    data, train = config.data, config.train
    swapped = data.model_copy(
        update={
            "source_lang": data.target_lang,
            "target_lang": data.source_lang,
            "columns": (data.columns[1], data.columns[0]),
        }
    )
    vectors = {"source_embeddings": train.target_embeddings, "target_embeddings": train.source_embeddings}
    return config.model_copy(update={"data": swapped, "train": train.model_copy(update=vectors)})


def resolve_threads(config: Config) -> Config:
    """Replace `train.threads = 0` by this machine's number of cores, because the number is part of the run."""
    if config.train.threads:
        return config
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return config.model_copy(update={"train": config.train.model_copy(update={"threads": threads})})


def choices(section: type[Section], name: str) -> tuple[str, ...]:
    """The values a setting with a fixed list of names may take."""
    return cast(tuple[str, ...], get_args(section.model_fields[name].annotation))


def settings_of(key: str) -> type[Section] | None:
    """The section class at a dotted path, or None if the path is not a section."""
    section: type[Section] = Config
    for part in filter(None, key.split(".")):
        field = section.model_fields.get(part)
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, Section)):
            return None
        section = field.annotation
    return section


def _split_override(override: str) -> tuple[str, Any]:
    key, equals, raw = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"command line: '{override}' is not of the form key=value, as in train.steps=500")
    parent, _, name = key.rpartition(".")
    section = settings_of(parent)
    field = section.model_fields.get(name) if section is not None else None
    values = get_args(field.annotation) if field is not None else ()
    named = (
        field is not None
        and get_origin(field.annotation) is not tuple
        and (field.annotation is str or any(isinstance(value, str) or value is str for value in values))
    )
    listed = raw.startswith("[") and any(get_origin(value) is list for value in values)
    if named and not listed:
        return key, raw  # a name is taken as it stands: data.source_lang=no is Norwegian
    try:
        return key, tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        if listed:
            raise ConfigError(
                f"command line: {override}: a list of names needs quotes inside, and quotes outside that keep them "
                f'from the shell, as in \'{key}=["one", "two"]\''
            ) from None
        return key, raw


def _set_by_path(tree: dict[str, Any], key: str, value: Any) -> None:
    *parents, name = key.split(".")
    for part in parents:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"command line: {key}: '{part}' is given both as a value and as a section")
    tree[name] = value


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    leaves = []
    for key, value in tree.items():
        leaves += _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
    return leaves


def _make_absolute(tree: dict[str, Any], base: Path) -> None:
    for *sections, name in _PATHS:
        values: Any = tree
        for section in sections:
            values = values.get(section) if isinstance(values, dict) else None
        value = values.get(name) if isinstance(values, dict) else None
        if isinstance(values, dict) and isinstance(value, str) and not value.startswith(HUB_PREFIX):
            values[name] = str((base / os.path.expanduser(value)).resolve())


def _where(key: str, problem: Any, origin: str, overridden: Sequence[str]) -> str:
    """Who gave the setting at `key`; a check of several settings together may concern both."""
    inside = any(not key or leaf.startswith(f"{key}.") for leaf in overridden)
    if problem["type"] == "value_error" and inside:
        return f"{origin} with the command line"
    return "command line" if inside or any(f"{key}.".startswith(f"{leaf}.") for leaf in overridden) else origin


# What pydantic calls a value that cannot be read: what was expected.
_KINDS = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "tuple_type": "a list in brackets",
    "list_type": "a list in brackets",
    "string_type": "a text",
}


def _all_settings(section: type[Section] | None = None) -> dict[str, Any]:
    """All settings and their defaults, as a tree."""
    tree: dict[str, Any] = {}
    for name, field in (section or Config).model_fields.items():
        below = field.annotation
        tree[name] = _all_settings(below) if isinstance(below, type) and issubclass(below, Section) else field.default
    return tree


def _as_in(key: str) -> str:
    """An example of a setting, if it has a default that can be shown."""
    parent, _, name = key.rpartition(".")
    section = settings_of(parent)
    field = section.model_fields.get(name) if section is not None else None
    if field is None or not isinstance(field.default, int | float | str | tuple):
        return ""
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    shown = (
        f"[{', '.join(map(str, default))}]" if isinstance(default, list) else tomli_w.dumps({"": default})[5:].strip()
    )
    return f", as in {key}={shown}"


def _example(key: str) -> str:
    return next((f"{key}.{leaf}=…" for leaf in _leaves(_all_settings(settings_of(key)))), key)


def _explain(key: str, problem: Any) -> str:
    kind, value = problem["type"], problem["input"]
    if kind == "extra_forbidden":
        parent, _, name = key.rpartition(".")
        section = settings_of(parent)
        known = list(section.model_fields) if section is not None else []
        close = difflib.get_close_matches(name, known, n=1)
        elsewhere = [place for place in _leaves(_all_settings()) if place.rpartition(".")[2] == name]
        if close:
            hint = f"Did you mean '{close[0]}'?"
        elif elsewhere:
            hint = f"Did you mean {' or '.join(map(repr, elsewhere))}?"
        else:
            hint = f"There are: {', '.join(known)}."
        return f"{key}: unknown setting. {hint}"
    if kind == "missing":
        return f"{key}: this setting is missing, and has no default."
    if kind == "literal_error":
        close = difflib.get_close_matches(str(value), re.findall("'([^']*)'", problem["ctx"]["expected"]), n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        return f"{key}: {value!r} is not one of {problem['ctx']['expected']}.{hint}"
    if kind == "model_type":
        return f"{key}: {value!r}: this is a section; name a setting in it, as in {_example(key)}."
    if kind in _KINDS:
        return f"{key}: {value!r}: {_KINDS[kind]} is needed{_as_in(key)}."
    message = problem["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key}: {value!r}: {message[0].lower()}{message[1:]}"
