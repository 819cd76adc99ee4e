"""Bahdanau, Cho and Bengio 2015: Neural machine translation by jointly learning to align and translate."""

from __future__ import annotations

from torch import Tensor, nn

from translate.config import ModelConfig
from translate.kernels import FastLinear
from translate.models.decoders.recurrent import RecurrentDecoder, TokenInput, Transition
from translate.models.source_views import ContextMatrices, SourceView
from translate.models.state import RecurrentState


class BahdanauDecoder(RecurrentDecoder):
    """Attends with the previous state: the context enters the recurrence, and a maxout layer reads state and context.

    c_t = attend(s_{t−1})                                     eq. 5-6; the paper's score, A.1.2, is called `additive`
    s_t = GRU(W E y_{t−1} + C c_t, s_{t−1})                   A.1.1 and A.2.2; W and C hold the rows of all three gates
    t_t = maxout(U_o s_t + V_o E y_{t−1} + C_o c_t)           A.2.2, which writes s_{t−1}; g of eq. 4 reads s_t
    p(y_t) = softmax(W_o t_t)                                 A.2.2

    The matrices have the paper's names. Sizes in comments: E of an embedding, H of the state, C of the context, F of
    t_t, V of the vocabulary.

    Beyond the paper: the form of the GRU is cuDNN's (recurrence.py); U_o has a bias; t_t is as wide as the embeddings,
    so that W_o can share their weights; dropout, an LSTM, layer norm, coverage. Of several layers the lowest receives
    the context, and the state of the top one is the query.
    """

    name = "bahdanau"
    formula = "c_t = attend(s_{t−1});  s_t = GRU(W y_{t−1} + C c_t, s_{t−1});  maxout(U_o s_t + V_o y_{t−1} + C_o c_t)"
    paper = "Bahdanau et al. 2015"
    when = "The default: the context enters the recurrence."

    def __init__(self, config: ModelConfig, memory_width: int, table: nn.Embedding, positions: int) -> None:
        super().__init__(config, memory_width, table, positions)
        num_features = config.embedding.width  # F
        self.state_to_readout = FastLinear(self.width, 2 * num_features)  # U_o (2F × H), with the only bias of the sum
        self.token_to_readout = FastLinear(config.embedding.width, 2 * num_features, bias=False)  # V_o (2F × E)
        self.context_to_readout = FastLinear(self.context_width, 2 * num_features, bias=False)  # C_o (2F × C)
        self.make_output(num_features)  # W_o (V × F), and the softmax

    def context_matrices(self) -> ContextMatrices:
        """C, which is the lowest layer's matrix for inputs that are known only at their step, and C_o."""
        return ContextMatrices(recurrence=self.stack.lowest.extra, readout=self.context_to_readout)

    def transition(self, token: TokenInput, state: RecurrentState, source: SourceView) -> Transition:
        attended = source.attend(state.top, state)  # α_t from the query s_{t−1}; c_t comes multiplied by C
        gate_inputs = self.stack.lowest.add_extra(token.prepared, attended.to_recurrence)  # W E y_{t−1} + C c_t
        hidden = self.stack.step(gate_inputs, state.hidden, state.masks)  # s_t of all layers
        next_state = state.next(hidden, attended)  # also counts the step, and adds α_t to the coverage
        return Transition(next_state, output_state=next_state.top, attended=attended)

    def readout(self, embedded: Tensor, output_state: Tensor, projected_context: Tensor | None) -> Tensor:
        """From E y_{t−1}, s_t of the top layer and C_o c_t: t_t."""
        assert projected_context is not None, "this decoder always attends"
        units = self.state_to_readout(output_state) + self.token_to_readout(embedded) + projected_context  # (…, 2F)
        return self.dropout(units.unflatten(-1, (-1, 2)).amax(dim=-1))  # maxout of each two neighbours: (…, F)
