"""Training of alignment heads: one head for each of two frozen runs of opposite directions.

A head learns the symmetrised links of both runs' attention and of a lexicon, and to agree with the other head. The
letters of shapes are those of pairs.py. "Forward" is the run that translates from source to target, "backward" the
other one.
"""
