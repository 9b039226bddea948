"""What tells where a load is of, and may be computed once more, for a load somewhere else."""

from __future__ import annotations

from wsdsl.ir.fragment_ops import Iota
from wsdsl.ir.memory_ops import LoadGlobal
from wsdsl.ir.op import Region, Value
from wsdsl.ir.tile_ops import Bitcast, Cast, Constant, Map
from wsdsl.ir.walk import makers

REPEATABLE = (Bitcast, Cast, Constant, Iota, Map)


def with_place(region: Region, load: LoadGlobal, *others: Value) -> Region:
    """The load, and what of the region makes its place and others; nothing if that takes more than
    arithmetic on numbers that are known there, as another load.
    """
    needed = makers(region, (load.result, *others))
    return needed if all(op is load or isinstance(op, REPEATABLE) for op in needed) else ()
