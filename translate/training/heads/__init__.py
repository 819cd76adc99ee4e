"""Training of alignment heads: two frozen runs that translate into each other's source teach each other's head.

A head learns the symmetrised links of both runs' attention and of a lexicon, and to agree with the other head. Letters:
those of pairs.py. "Forward" is the run that translates from source to target, "backward" the other one.
"""
