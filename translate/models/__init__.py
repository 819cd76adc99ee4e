"""The networks. Shapes, here and everywhere:

B batch, S source length, T target length, E embedding, H decoder state, D encoder state (all directions), A attention,
G groups of attention weights (heads, or features), C context, F features before the output layer, V vocabulary,
L layers, K beam, N rows of any kind (real tokens of a batch, live hypotheses of a search).

Batch first. Masks are boolean, named `*_valid`, and True means a real token.
"""
