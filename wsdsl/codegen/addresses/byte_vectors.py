"""Vector loads of up to 16 bytes of 8-bit elements that lie in memory in the order of the words of
a packed tensor, the elements of each thread contiguous (`Registers.words`).

The index along the last dimension has this order; for a matrix in which the elements of a lane are
contiguous: `index(k) % 64 // 2 % 4 * 32 + index(k) % 64 // 8 * 4 + index(k) % 2 * 2 + index(n) % 16
// 8`.
"""

import math

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.addresses.gmem_addresses import Addresses
from wsdsl.codegen.arithmetic.byte_maps import of_words
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.llvm_types import dtype_and_shape, num_elements
from wsdsl.codegen.value_registers import Registers
from wsdsl.ir.ops import LoadGlobal
from wsdsl.ir.types import ACCUMULATOR, Fragment

WORD, MOST = 4, 16
"""Elements of a word, and of the longest vector."""


def may_be_words(op: LoadGlobal) -> bool:
    """Whether it is of bytes, and each has a place of its own along the last dimension: lines of
    the tensor then begin at multiples of MOST bytes, unless it is one of the `unaligned`.
    """
    kind, place = op.result.type, op.index[-1].type
    if not isinstance(kind, Fragment) or not isinstance(place, Fragment) or op.vector > 1:
        return False
    in_words = kind.dtype.bits == 8 and kind.lanes == ACCUMULATOR
    return in_words and kind.columns % 8 == 0 and place.rows == kind.rows > 1 < place.columns


def load_byte_words(
    c: Context, op: LoadGlobal, addresses: Addresses, constant: bool
) -> Registers | None:
    """None where they lie otherwise, or not all of a vector exist at once."""
    if not may_be_words(op):
        return None
    dtype, shape = dtype_and_shape(op.result.type)
    count = num_elements(*shape)
    last = addresses.last
    if last is None or last.lanes is None:
        return None
    places = [last.offsets[addresses.source(addresses.last_dim, e)] for e in range(count)]
    order = [e for word in range(0, count, WORD) for e in (word, word + 2, word + 1, word + 3)]
    first = places[0]
    if [places[e] - first for e in order] != list(range(count)):
        return None
    wide = math.gcd(MOST, count, last.lanes.unit, first)
    alone = [e for e in range(count) if not addresses.is_same_line(e)]
    if wide < WORD or alone or not addresses.is_aligned:
        return None
    words: list[str] = []
    for at in range(0, count, wide):
        conditions = {addresses.condition(e) for e in order[at : at + wide]}
        if len(conditions) > 1:
            return None
        (whole,), place = conditions, addresses.at(order[at])
        # Of rows that are read here and there the next one is read soon.
        row = op.only is not None
        words += inline_ptx.ld_global_vector(c.w, place, 32, wide // WORD, whole, constant, row)
    return of_words(c.w, dtype, words, shape)
