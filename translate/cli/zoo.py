"""`translate zoo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from translate.cli.options import PluginOption

if TYPE_CHECKING:  # pydantic takes a while, and `--help` imports this file
    from translate.config.declarations import Declaration


class Extra(NamedTuple):
    """A setting that goes with any member."""

    formula: str
    summary: str
    paper: str


EXTRAS = {
    "model.attention.heads=N": Extra(
        "α_h = attend(q_h, k_h);  c = W [c_1; …; c_N]",
        "Several attention heads in parallel, each on its part of the width; the weights shown are their mean.",
        "Vaswani et al. 2017, section 3.2.2",
    ),
    "model.attention.hops=N": Extra(
        "q' = tanh(W [q; c]);  c = attend(q')",
        "Several attention steps in sequence: each context is combined with the query for the next one.",
        "Sukhbaatar et al. 2015",
    ),
    "model.attention.per_feature=true": Extra(
        "c_d = Σ_s α_sd v_sd,  one softmax for each d",
        "Each dimension of the memory has its own weights; slow, and the weights shown are the mean.",
        "Choi et al. 2018",
    ),
    "model.attention.coverage=true": Extra(
        "k_ts = k_s + w Σ_{t' < t} α_t's;  loss + λ Σ_s min(α_ts, Σ_{t' < t} α_t's)",
        "The score reads the sum of earlier weights; this reduces repeated and omitted words.",
        "See et al. 2017, eq. 10-12; Tu et al. 2016",
    ),
    "model.decoder.copy=true": Extra(
        "p(y) = g p_vocabulary(y) + (1 − g) Σ_{s: x_s = y} α_s;  the weight on </s> goes to p_vocabulary",
        "A pointer copies rare names and numbers from the source; needs tokenizer.joint.",
        "See et al. 2017, eq. 8-9; Merity et al. 2017",
    ),
    "model.decoder.cell=lstm": Extra(
        "s_t, m_t = LSTM(x_t, s_{t−1}, m_{t−1})",
        "An LSTM in place of the GRU in any decoder; a third more multiplications.",
        "Hochreiter and Schmidhuber 1997",
    ),
    "model.encoder.layers=N, model.encoder.residual=true": Extra(
        "m^l = m^{l−1} + RNN^l(m^{l−1})",
        "A deeper encoder; residual connections keep it trainable.",
        "Wu et al. 2016, section 3.1",
    ),
    "model.encoder.layer_norm=true, model.decoder.layer_norm=true": Extra(
        "gates = LN(W x) + LN(U h)",
        "Normalises inside the recurrence: steadier training, no fused kernel.",
        "Ba et al. 2016, eq. 20-22",
    ),
    "model.encoder.variational=true, model.decoder.variational=true": Extra(
        "h_t = RNN(x_t, h_{t−1} ⊙ z),  one z per sentence",
        "The same units are dropped at every step, in the recurrence too.",
        "Gal and Ghahramani 2016",
    ),
    "model.encoder.word_dropout=P, model.decoder.word_dropout=P": Extra(
        "x_s = 0 with probability P",
        "Whole words are masked, so that the model learns to use their context.",
        "Sennrich et al. 2016 (WMT)",
    ),
    "model.encoder.self_attention=true": Extra(
        "m' = LN(m + W softmax(q kᵀ / √d) v)",
        "Positions of the source attend to each other before the decoder attends to them.",
        "Vaswani et al. 2017, eq. 1",
    ),
    "model.encoder.reverse=true": Extra(
        "h_s = RNN(x_s, h_{s+1})",
        "Reads the source from its end; each state keeps the position of its token.",
        "Sutskever et al. 2014, section 3.3",
    ),
}


def command(plugin: PluginOption = None) -> None:
    """The encoders, decoders, scores, scopes and selections, with their formulas and papers."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)

    def show(name: str, formula: str, text: str) -> None:
        console.print(Padding(Text.assemble((name, "bold cyan"), "  ", formula), (0, 0, 0, 2)))
        console.print(Padding(Text(text), (0, 0, 0, 6)))

    for setting, members in zoo().items():
        console.print(Text(setting, style="bold"))
        for name, member in members.items():
            show(name, member.formula, f"{member.summary} {member.when} [{member.paper}]")
        console.print()
    console.print(Text("options that go with any member, unless they are refused with a reason", style="bold"))
    for setting, extra in EXTRAS.items():
        show(setting, extra.formula, f"{extra.summary} [{extra.paper}]")


def zoo() -> dict[str, Mapping[str, Declaration]]:
    """Every family of members, by the setting that chooses from it."""
    from translate.config.members import MEMBERS

    return {f"model.{setting}": members for setting, members in MEMBERS.items()}
