"""Kernels by which two checkouts are compared: over all types, layouts, forms and schedules.

An entry is data alone (text, sizes, words of a schedule), so that a checkout that knows nothing of
this folder can be asked for its PTX, too. tools/compare_ptx.py does that. Nothing here says what
the PTX should be: what changes on purpose needs no update.
"""

from tests.corpus.entries import Entry, corpus

__all__ = ["Entry", "corpus"]
