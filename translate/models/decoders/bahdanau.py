"""Bahdanau, Cho and Bengio 2015: Neural machine translation by jointly learning to align and translate."""

from __future__ import annotations

from torch import Tensor, nn

from translate import kernels
from translate.config import ModelConfig
from translate.kernels import FastLinear
from translate.models.decoders.recurrent import RecurrentDecoder, TokenInput, Transition
from translate.models.source_views import ContextMatrices, SourceView
from translate.models.state import RecurrentState


class BahdanauDecoder(RecurrentDecoder):
    """Attends with the previous state: the context enters the recurrence, and a maxout layer reads state and context.

    c_t = attend(s_{t−1})                                       eq. 5-6; the additive score is appendix A.1.2
    s_t = GRU(W E y_{t−1} + C c_t, s_{t−1})                     A.1.1 and A.2.2, the gates' matrices stacked in W and C
    features_t = maxout(U_o s_t + V_o E y_{t−1} + C_o c_t)      A.2.2, which writes s_{t−1}; g of eq. 4 reads s_t

    Beyond the paper: dropout, an LSTM, layer norm, coverage, and more layers, of which the lowest reads the context and
    the top one attends. The readout is as wide as the embeddings, so that the output matrix can be theirs.
    """

    name = "bahdanau"
    formula = "c_t = attend(s_{t−1});  s_t = GRU(W y_{t−1} + C c_t, s_{t−1});  maxout(U_o s_t + V_o y_{t−1} + C_o c_t)"
    paper = "Bahdanau et al. 2015"
    when = "The default: what was attended to enters the next state itself."

    def __init__(self, config: ModelConfig, memory_width: int, table: nn.Embedding, positions: int) -> None:
        super().__init__(config, memory_width, table, positions)
        features = config.embedding.width  # F
        self.state_to_readout = FastLinear(self.width, 2 * features)  # U_o, (2F, H), and the bias of the sum
        self.token_to_readout = FastLinear(config.embedding.width, 2 * features, bias=False)  # V_o, (2F, E)
        self.context_to_readout = FastLinear(self.context_width, 2 * features, bias=False)  # C_o, (2F, C)
        self.make_output(features)  # W_o, (V, F), and the softmax

    def context_matrices(self) -> ContextMatrices:
        return ContextMatrices(recurrence=self.stack.lowest.extra, readout=self.context_to_readout)  # C and C_o

    def transition(self, token: TokenInput, state: RecurrentState, source: SourceView) -> Transition:
        attended = source.attend(state.top, state)  # the query is s_{t−1}; finds C c_t, and C_o c_t for the readout
        gates = self.stack.lowest.add_extra(token.prepared, attended.to_recurrence)  # W E y_{t−1} + C c_t
        hidden = self.stack.step(gates, state.hidden, state.masks)  # s_t of all layers
        following = state.next(hidden, attended)
        return Transition(following, output_state=following.top, attended=attended)

    def readout(self, embedded: Tensor, output_state: Tensor, projected_context: Tensor | None) -> Tensor:
        assert projected_context is not None, "this decoder always attends"
        units = self.state_to_readout(output_state) + self.token_to_readout(embedded) + projected_context  # (N, 2F)
        return self.dropout(kernels.maxout(units))  # max of units 2j − 1 and 2j: (N, F)
