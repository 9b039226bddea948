"""Dynamic tiles: clusters that run claim what has not started (cluster launch control).

A "dynamic" grid has a cluster for each tile, and the card starts as many as it has room for. One
thread of a cluster asks for another one: the answer says which one will not start any more, so that
its tile is the asking cluster's, or that there is none. Each cluster of the grid is started or
claimed, once, so each tile is done once; by whom, the card decides as clusters get done.

The answers are a ring of `DEPTH` items. The hardware fills it; all partitions of all CTAs of the
cluster read each answer, which is the next index of their loop over tiles, and give it back.
"""

from __future__ import annotations

ANSWER_BYTES = 16
NOTHING_LEFT = 2**31 - 1
"""The index that an answer has which claims no cluster: none that a loop goes on with."""
DEPTH = 2
"""The one that partitions read late, as they are done with its tile, and the one that is asked for:
who asks is no further ahead, since products wait for sums that are read."""
