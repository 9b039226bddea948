"""Tables that the launch stub reads: all of 8-byte words."""

from enum import IntEnum

MAX_ARGUMENTS, KEY_WORDS = 64, 1024
HEADER_BYTES = 64
"""The machine code begins with the offset of the second function; the first is behind these."""
FIRST_SLOT = 2
"""Word of an instance where the first of `__slots__` is."""
TYPE_CALL, TYPE_BASE = 16, 32
"""Words of a type object: `tp_call` and `tp_base`."""


class Api(IntEnum):
    """Words of the table of addresses."""

    TENSOR, PARAMETER, FLOAT, LONG, TRUE, NOT_IMPLEMENTED = range(6)
    NONE_TYPE, BOOL, STR, TUPLE, DTYPE, DLTENSOR, STREAM = range(6, 13)
    REQUIRES_GRAD, GRAD_ENABLED, DISPATCH_MODES, FORWARD_AD, LEVEL, COUNT_WRITES = range(13, 19)
    CONTEXT, CONTEXT_ID, REPLACE_ADDRESS, LAUNCH = range(19, 23)
    CLEAR, GET_ATTRIBUTE, CALL, CALL_ONE, NEW_TUPLE, SET_ITEM = range(23, 29)
    AS_DOUBLE, AS_LONG, COMPARE, INCREF, DECREF, AUTOCAST = range(29, 35)
    TRACING, IS_NEGATED, STREAM_ID, IS_CAPTURING, SCHEDULE = range(35, 40)
    RECORDINGS, REPEAT = range(40, 42)


CONSTANTS = Api.NONE_TYPE, Api.BOOL, Api.STR, Api.TUPLE, Api.DTYPE, Api.SCHEDULE
"""Types of arguments that are compared by identity."""


class Site(IntEnum):
    """Words of the known calls of one function."""

    API, FIRST, IS_OPERATOR = range(3)


class Entry(IntEnum):
    """Words of a known call."""

    NEXT, KEY, KEY_BYTES, CONTEXT, CONTEXT_ID, DEVICE = range(6)
    CONFIG, FUNCTION, PARAMETERS = range(6, 9)
    TENSORS, NUM_TENSORS, PATCHES, NUM_PATCHES, SCALARS, NUM_SCALARS = range(9, 15)
    MAKERS, NUM_MAKERS, RESULTS, NUM_RESULTS, COUNTED, NUM_COUNTED = range(15, 21)
    WRITTEN, FIXED_STREAM, IS_VALID, STREAM_ID = range(21, 25)


class Kind(IntEnum):
    """Types of scalar arguments."""

    I32, F32, U32 = range(3)
