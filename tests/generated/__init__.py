"""Kernels written at random over the whole grammar, and what each of them has to hold to.

`python -m tests.generated 2000 7` tries 2,000 programs from seed 7 on; see `trial.py` for what is
asked of one.
"""
