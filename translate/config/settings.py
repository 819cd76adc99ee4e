"""Every setting, its default and its check, once.

The docstring under a setting is its help text: `translate init` writes it into new configuration files. Nothing here
imports torch, so reading a configuration is quick.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import CoreSchema, PydanticKnownError
from pydantic_core.core_schema import no_info_plain_validator_function

from translate.config import checks
from translate.config.declarations import either
from translate.config.members import DECODERS, ENCODERS, MEMBERS

HUB_PREFIX = "hub:"
# pydantic has replaced its `copy` by `model_copy`, so a setting may have that name.
warnings.filterwarnings("ignore", message='Field name "copy" in "DecoderConfig" shadows')
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
Weight = Annotated[float, Field(gt=0.0, le=1000.0)]
Column = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class MemberOf:
    """The name of a member of a family, including the members of plugins that are loaded by then."""

    setting: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return no_info_plain_validator_function(self.check)

    def check(self, value: Any) -> str:
        members = MEMBERS[self.setting]
        if not isinstance(value, str) or value not in members:
            raise PydanticKnownError("literal_error", {"expected": either(members)})
        return value


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
    """How often each corpus of a list is used per epoch: 2 is twice, 0.5 a different half each time. 1 if left out."""
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
        checks.check_data(self)
        return self


class TokenizerConfig(Section):
    """How text becomes pieces."""

    kind: Literal["unigram", "bpe", "word", "char"] = "unigram"
    """What a piece is: a subword by one of two models, a whole word between spaces, a character."""
    vocabulary: int = Field(8000, ge=16)
    """Largest number of pieces in a vocabulary; a small corpus gets fewer."""
    joint: bool = True
    """One vocabulary for both languages."""
    byte_fallback: bool = True
    """unigram, bpe, char: spell characters that are not in the vocabulary as bytes, so that no text is unknown."""
    normalization: Literal["identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"] = "identity"
    """Unicode normalisation before segmentation; "identity" does none. Always, control characters, line separators,
    U+FEFF and "▁" become spaces, and several spaces become one."""
    nbest: int = Field(1, ge=1, le=512)
    """unigram: in each epoch, draw a sentence's segmentation from this many likeliest ones (Kudo 2018); 1 is off."""
    nbest_alpha: float = Field(0.2, ge=0.0)
    """nbest: how strongly likelier segmentations are preferred; 0 is not at all."""

    @property
    def spells_bytes(self) -> bool:
        """Whether there are pieces for bytes; a vocabulary of whole words has none."""
        return self.byte_fallback and self.kind != "word"

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        checks.check_tokenizer(self)
        return self


class EmbeddingConfig(Section):
    """The vectors of the pieces."""

    width: int = Field(256, ge=1)
    """Width of the embeddings."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Dropout on the embeddings of both sides."""
    tied: Literal["none", "two", "three"] = "two"
    """Which matrices are shared: "two" target embeddings and output layer, "three" also the source embeddings."""


class EncoderConfig(Section):
    """What reads the source."""

    kind: Annotated[str, MemberOf("encoder.kind")] = "bigru"
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
    """Share of source pieces whose embeddings are set to zero in training."""
    residual: bool = False
    """Each layer after the first adds its output to its input."""
    layer_norm: bool = False
    """Layer normalisation inside the recurrence."""
    self_attention: bool = False
    """One residual layer of self-attention over the memory."""
    reverse: bool = False
    """gru, lstm: read the source from right to left, so that its first words are read last."""
    summary: Annotated[str, MemberOf("encoder.summary")] = "last"
    """The vector of the source from which the decoder's state starts."""

    @property
    def output_width(self) -> int:
        """Width of the memory."""
        return self.width * ENCODERS[self.kind].width_multiple

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        checks.check_encoder(self)
        return self


class AttentionConfig(Section):
    """How the decoder attends to the source."""

    score: Annotated[str, MemberOf("attention.score")] = "additive"
    """How well a query fits a position; `translate zoo` shows the formulas."""
    scope: Annotated[str, MemberOf("attention.scope")] = "global"
    """Which positions can get weight."""
    selection: Annotated[str, MemberOf("attention.selection")] = "soft"
    """How scores become weights."""
    width: int = Field(256, ge=1)
    """Width of queries and keys inside the score, where the formula leaves it free."""
    window: int = Field(5, ge=1)
    """Half-width of the window around the centre, for every scope but global."""
    heads: int = Field(1, ge=1)
    """Number of attention heads, each on its part of the width."""
    hops: int = Field(1, ge=1, le=16)
    """Number of attention steps in sequence: each context is combined with the query for the next one."""
    per_feature: bool = False
    """One set of weights for each dimension of the memory instead of one for all."""
    coverage: bool = False
    """The score reads how much weight each position has received so far."""
    coverage_loss: float = Field(0.1, ge=0.0)
    """coverage: weight of the loss on attending to the same position again."""
    temperature: float = Field(1.0, gt=0.0)
    """hard_gumbel: temperature of the draw at the start."""
    temperature_end: float = Field(0.3, gt=0.0)
    """hard_gumbel: temperature at the end; it falls geometrically."""
    entropy: float = Field(0.01, ge=0.0)
    """hard_reinforce: weight of the entropy bonus, which keeps the choice of positions random."""

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        checks.check_attention(self)
        return self


class DecoderConfig(Section):
    """What writes the target."""

    kind: Annotated[str, MemberOf("decoder.kind")] = "bahdanau"
    """Where attention sits in the recurrence; `translate zoo` explains each."""
    cell: Literal["gru", "lstm"] = "gru"
    """Recurrent unit."""
    width: int = Field(256, ge=1)
    """Width of the state."""
    layers: int = Field(1, ge=1)
    """Number of layers; the query comes from the top one, the context enters the first."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Dropout between layers and before the output layer."""
    variational: bool = False
    """Draw dropout between layers once per sentence, and drop in the recurrence too."""
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of the decoder's input pieces whose embeddings are set to zero in training."""
    layer_norm: bool = False
    """Layer normalisation inside the recurrence."""
    input_feeding: bool = True
    """luong: feed the attentional vector into the next step. Without it training needs no loop."""
    copy: bool = False  # type: ignore[assignment]
    """Add a pointer that copies source pieces by their attention weights; needs a joint vocabulary."""


class ModelConfig(Section):
    """The network: any encoder × decoder × score × scope × selection."""

    embedding: EmbeddingConfig = EmbeddingConfig()
    encoder: EncoderConfig = EncoderConfig()
    attention: AttentionConfig = AttentionConfig()
    decoder: DecoderConfig = DecoderConfig()

    @property
    def members(self) -> list[str]:
        """The settings that choose a member of the zoo, as in "attention.score=additive"."""
        return [f"{setting}={checks.value_of(self, setting)}" for setting in MEMBERS]

    @property
    def attends(self) -> bool:
        """Whether there is attention; else [model.attention] has no effect."""
        return DECODERS[self.decoder.kind].attends

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        checks.check_model(self)
        return self


class TeacherForcingConfig(Section):
    """How often the decoder is fed the reference instead of its own words while it learns (Bengio et al. 2015)."""

    ratio: float = Field(1.0, ge=0.0, le=1.0)
    """Share of reference tokens at the start. At 1 throughout, training takes the fast path."""
    schedule: Literal["constant", "linear", "inverse_sigmoid"] = "constant"
    """How the share moves from `ratio` to `end`."""
    end: float = Field(0.0, ge=0.0, le=1.0)
    """Share at the end of a linear or inverse sigmoid schedule."""
    unit: Literal["token", "sentence", "batch"] = "token"
    """What one random choice covers."""
    feed: Literal["sample", "argmax"] = "sample"
    """The model's own word: drawn from its distribution, or the likeliest."""


class GuidedConfig(Section):
    """Given word links as a second training target, for the attention (Chen et al. 2016)."""

    links: str | None = None
    """A file of links of the training pairs, line by line: Pharaoh (source-target, from 0), or any that `aer` reads."""
    weight: float = Field(0.5, gt=0.0)
    """Weight of the loss on a target token's links, against 1 for the loss on the token."""


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
    bf16 itself, as `translate doctor` shows, "bf16" trains faster than fp32."""
    compile: bool = False
    """Compile the decoder's step by torch.compile; takes a minute or two at the start, and may be faster on GPUs."""
    threads: int = Field(0, ge=0)
    """CPU threads; 0 takes one for each core. It is part of the run: another number gives other roundings."""
    batch_tokens: int = Field(2000, ge=1)
    """Size of a batch: sentences times the longest of them, on the longer side."""
    accumulate: int = Field(1, ge=1)
    """Batches per update."""
    optimizer: Literal["adam", "adamw", "sgd", "adadelta"] = "adam"
    """Optimizer; sgd and adadelta need a learning rate near 1."""
    learning_rate: float = Field(1e-3, gt=0.0)
    """Peak learning rate."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """Decay of Adam's two averages."""
    momentum: float = Field(0.0, ge=0.0, lt=1.0)
    """sgd: share of the previous update that is added to the next."""
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
    """Word links as a training target for attention."""
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
    def _has_meaning(self) -> Self:
        checks.check_train(self)
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
    """Weight of a penalty on source pieces that got little attention (Wu et al. 2016, eq. 14); 0 is off."""
    stop: Literal["exact", "first", "full"] = "exact"
    """When a sentence is done: "exact" no open hypothesis can still become one of the best, "first" as many have ended
    as are wanted, "full" all have ended."""
    length_ratio: float = Field(2.0, gt=0.0)
    """Longest translation: length_ratio × source pieces + length_extra; lengths count the end symbol."""
    length_extra: int = Field(10, ge=1)
    """See length_ratio."""
    max_length: int = Field(0, ge=0)
    """Longest translation, for any source; 0 means no limit other than that of length_ratio."""
    min_ratio: float = Field(0.0, ge=0.0)
    """Shortest translation: min_ratio × source pieces."""
    min_length: int = Field(0, ge=0)
    """Shortest translation, for any source."""
    no_repeat_ngram: int = Field(0, ge=0)
    """No sequence of this many pieces occurs twice in a translation; 0 is off."""
    banned: tuple[str, ...] = ()
    """Words and phrases that are never written, in any segmentation."""
    groups: int = Field(1, ge=1)
    """Number of groups in the beam; each avoids the pieces of earlier groups (Vijayakumar et al. 2018)."""
    diversity: float = Field(0.5, ge=0.0)
    """groups: penalty on a piece for each time an earlier group has chosen it at the same step."""
    sample: bool = False
    """Draw translations instead of searching for the likeliest."""
    temperature: float = Field(1.0, gt=0.0)
    """sample: log probabilities are divided by it; below 1, likely pieces are drawn more often."""
    top_k: int = Field(0, ge=0)
    """sample: draw from this many likeliest pieces only; 0 means all."""
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    """sample: draw from the likeliest pieces with this total probability only."""
    seed: int = Field(1, ge=0, lt=2**31)
    """sample: the same seed, line number and step give the same draw in any batch."""
    replace_unknown: bool = True
    """tokenizer.kind = "word": write the source word that attention points to in place of an unknown word."""
    keep_entities: bool = False
    """E-mail addresses, URLs and numbers of the source must appear unchanged in the translation."""
    int8: bool = False
    """Compute the decoder's matrix products in 8 bits: faster on a CPU, a little less exact."""
    max_source: int = Field(512, ge=1)
    """Source pieces beyond this are cut off, with a warning."""
    batch_tokens: int = Field(4000, ge=1)
    """Source positions decoded together, padding included."""


class LoggingConfig(Section):
    """What training reports."""

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
        checks.check_together(self)
        return self


def settings_of(key: str) -> type[Section] | None:
    """The section class at a dotted path, or None if the path is not a section."""
    section: type[Section] = Config
    for part in filter(None, key.split(".")):
        field = section.model_fields.get(part)
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, Section)):
            return None
        section = field.annotation
    return section


def choices(section: type[Section], name: str) -> tuple[str, ...]:
    """The names a setting may take; empty if its values are not names."""
    field = section.model_fields[name]
    for given in field.metadata:
        if isinstance(given, MemberOf):
            return tuple(MEMBERS[given.setting])
    return cast(tuple[str, ...], get_args(field.annotation)) if get_origin(field.annotation) is Literal else ()
