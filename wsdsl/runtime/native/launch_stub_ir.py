"""Emit the launch stub: the native function that repeats a known call at other addresses.

Layouts: see `launch_stub.py`.
"""

from struct import pack
from typing import Any

from llvmlite import ir

from wsdsl.runtime.native import launch_table as layout
from wsdsl.runtime.native import native_ir
from wsdsl.runtime.native.launch_table import Api, Entry, Kind, Site
from wsdsl.runtime.native.native_ir import F32, F64, I32, WORD, Builder

DL_BYTES = 48
CUDA = 2
"""kDLCUDA."""
TUPLE_SIZE, TUPLE_ITEMS = 2, tuple.__basicsize__ // 8
"""Words of a tuple object."""
F32_LIMIT, MAGNITUDE = 0x47EFFFFFF0000000, (1 << 63) - 1
"""Bits of the least f64 that rounds to an infinite f32; those but the sign."""


class Stub(Builder):
    """The launch stub under construction."""

    def __init__(self, payload: int) -> None:
        """`payload`: where the data of a `bytes` object starts, which has the site's address."""
        super().__init__("launch", 4)
        own, arguments, positional, names = self.function.args
        self.key, self.places = self.array(layout.KEY_WORDS), self.array(layout.MAX_ARGUMENTS)
        self.objects, self.tensor = self.array(layout.MAX_ARGUMENTS), self.array(DL_BYTES // 8)
        self.result = self.array(1)
        self.filled, self.made, self.total = (self.variable(0) for _ in range(3))
        self.site = self.load(self.plus(own, payload))
        self.api = self.word(self.site, Site.API)
        self.given = self._shape(positional, names)
        self._body(arguments)
        self._missed()

    def push(self, word: Any) -> None:
        """Append a word to the key."""
        filled = self.b.load(self.filled)
        self.store(word, self.at(self.key, filled))
        self.b.store(self.plus(filled, 1), self.filled)

    # The call -------------------------------------------------------------------------------------

    def _body(self, arguments: Any) -> None:
        number = self.given
        with self.b.if_then(self.differs(number, 0)):
            recording = self._is_true(Api.GRAD_ENABLED)
            self.miss_if(self._is_true(Api.TRACING))
            with self.b.if_then(self.differs(self.word(self.site, Site.IS_OPERATOR), 0)):
                self.miss_if(self._is_true(Api.AUTOCAST))
            modes = self._number(self.call(Api.CALL, self.word(self.api, Api.DISPATCH_MODES)))
            self.miss_if(self.b.icmp_signed(">", modes, self.constant(0)))
            forward, name = (self.word(self.api, x) for x in (Api.FORWARD_AD, Api.LEVEL))
            level = self._number(self.call(Api.GET_ATTRIBUTE, forward, name))
            self.miss_if(self.b.icmp_signed(">=", level, self.constant(0)))
            with self.loop(number) as i:
                self._look(self.word(arguments, i), i, recording)
        entry = self._find()
        with self.b.if_then(self.differs(number, 0)):
            context = self._out(lambda place: self.call(Api.CONTEXT, place, result=I32))
            self.miss_if(self.differs(context, self.word(entry, Entry.CONTEXT)))
            own = self._out(lambda place: self.call(Api.CONTEXT_ID, context, place, result=I32))
            self.miss_if(self.differs(own, self.word(entry, Entry.CONTEXT_ID)))
        with self.loop(self.word(entry, Entry.NUM_MAKERS)) as i:
            self._make(self.word(self.word(entry, Entry.MAKERS), i), self.plus(number, i))
        self._check_overlap(entry)
        with self.b.if_then(self.differs(self.word(entry, Entry.IS_VALID), 0)):
            # Another thread may have replaced the workspace while an output was allocated.
            self.miss_if(self.is_equal(self.word(self.word(entry, Entry.IS_VALID), 0), 0))
        self._patch(entry)
        config = self.word(entry, Entry.CONFIG)
        self.store(self._stream(entry), self.plus(config, native_ir.CONFIG_STREAM))
        function, table = self.word(entry, Entry.FUNCTION), self.word(entry, Entry.PARAMETERS)
        status = self.call(Api.LAUNCH, config, function, table, self.constant(0), result=I32)
        self.miss_if(self.differs(status, 0))
        self._count(entry)
        self._return(entry)

    def _shape(self, positional: Any, names: Any) -> Any:
        """Push how arguments are given; return how many there are."""
        self.push(positional)
        self.b.store(positional, self.total)
        with self.b.if_then(self.differs(names, 0)):
            number = self.word(names, TUPLE_SIZE)
            self.b.store(self.b.add(positional, number), self.total)
            self.miss_if(self.b.icmp_signed(">", number, self.constant(layout.MAX_ARGUMENTS // 4)))
            with self.loop(number) as i:
                self.push(self.word(names, self.plus(i, TUPLE_ITEMS)))
        given = self.b.load(self.total)
        self.miss_if(self.b.icmp_signed(">", given, self.constant(layout.MAX_ARGUMENTS // 2)))
        return given

    def _out(self, call: Any) -> Any:
        """Call a function that writes a word and returns 0."""
        self.store(self.constant(0), self.result)
        self.miss_if(self.differs(call(self.result), 0))
        return self.load(self.result)

    def _stream(self, entry: Any) -> Any:
        """The fixed stream of an entry, or torch's current one on its device."""
        device, stream = self.word(entry, Entry.DEVICE), self.variable(0)
        self.b.store(self.word(entry, Entry.FIXED_STREAM), stream)
        with self.b.if_then(self.b.icmp_signed(">=", device, self.constant(0))):
            kind, number = ir.Constant(I32, CUDA), self.b.trunc(device, I32)
            found = self._out(lambda at: self.call(Api.STREAM, kind, number, at, result=I32))
            self.b.store(found, stream)
        return self.b.load(stream)

    def _number(self, found: Any) -> Any:
        """The value of an owned Python integer."""
        self.miss_if(self.is_equal(found, 0))
        value = self.call(Api.AS_LONG, found, self.result)
        self.call(Api.DECREF, found)
        return value

    def _is_true(self, function: Api, *value: Any) -> Any:
        how = Api.CALL_ONE if value else Api.CALL
        found = self.call(how, self.word(self.api, function), *value)
        self.miss_if(self.is_equal(found, 0))
        self.call(Api.DECREF, found)
        return self.is_equal(found, self.word(self.api, Api.TRUE))

    def _look(self, value: Any, index: Any, recording: Any) -> None:
        kind = self.word(value, 1)
        self.store(value, self.at(self.objects, index))
        tensor = self.b.or_(
            self.is_equal(kind, self.word(self.api, Api.TENSOR)),
            self.is_equal(kind, self.word(self.api, Api.PARAMETER)),
        )
        with self.b.if_else(tensor) as (then, otherwise):
            with then:
                with self.b.if_then(recording):
                    found = self.call(Api.REQUIRES_GRAD, value, self.constant(0))
                    self.miss_if(self.is_equal(found, 0))
                    self.call(Api.DECREF, found)
                    self.miss_if(self.is_equal(found, self.word(self.api, Api.TRUE)))
                address = self._describe(value)
                self._check_sign(value)
                self.push(self.b.and_(address, self.constant(15)))
                self.store(address, self.at(self.places, index))
            with otherwise:
                self._constant(value, kind, index)

    def _describe(self, value: Any) -> Any:
        """Push type, device and geometry of a tensor; return its address."""
        self.miss_if(self.differs(self.call(Api.DLTENSOR, value, self.tensor, result=I32), 0))
        data, device, kind, shape, strides, offset = (self.word(self.tensor, i) for i in range(6))
        dims = self.b.and_(kind, self.constant(0xFFFFFFFF))
        self.miss_if(self.b.icmp_unsigned(">", dims, self.constant(layout.KEY_WORDS // 8)))
        self.push(device)
        self.push(kind)
        for sizes in (shape, strides):
            with self.loop(dims) as i:
                self.push(self.word(sizes, i))
        filled = self.b.load(self.filled)
        self.miss_if(self.b.icmp_signed(">", filled, self.constant(layout.KEY_WORDS // 2)))
        self.miss_if(self.is_equal(data, 0))
        return self.plus(data, offset)

    def _check_sign(self, value: Any) -> None:
        """Miss if a tensor negates its memory, as x.conj().imag, whose strides are all even."""
        dims, strides = self.load(self.plus(self.tensor, 16), I32), self.word(self.tensor, 4)
        self.store(self.constant(0), self.result)
        with self.loop(self.b.zext(dims, WORD)) as i:
            self.store(self.b.or_(self.load(self.result), self.word(strides, i)), self.result)
        odd = self.b.and_(self.load(self.result), self.constant(1))
        with self.b.if_then(self.is_equal(odd, 0)):
            self.miss_if(self._is_true(Api.IS_NEGATED, value))

    def _constant(self, value: Any, kind: Any, index: Any) -> None:
        """Push type and sign of a number, whose value is its place; others by identity."""
        self.push(kind)
        is_float = self.is_equal(kind, self.word(self.api, Api.FLOAT))
        is_long = self.is_equal(kind, self.word(self.api, Api.LONG))
        known = self.b.or_(is_float, is_long)
        for constant in layout.CONSTANTS:
            is_constant = self.is_equal(kind, self.word(self.api, constant))
            known = self.b.or_(known, is_constant)
            with self.b.if_then(is_constant):
                self.push(value)
        self.miss_if(self.b.not_(known))
        with self.b.if_then(is_float):
            number = self.call(Api.AS_DOUBLE, value, result=F64)
            self.push(self.b.zext(self.b.fcmp_ordered(">", number, ir.Constant(F64, 0.0)), WORD))
            self.store(number, self.at(self.places, index))
        with self.b.if_then(is_long):
            number = self.call(Api.AS_LONG, value, self.result)
            self.miss_if(self.differs(self.load(self.result, I32), 0))
            self.push(self.b.zext(self.b.icmp_signed(">", number, self.constant(0)), WORD))
            self.store(number, self.at(self.places, index))

    def _find(self) -> Any:
        """The entry with this key; of entries with a workspace, that of the current stream."""
        current = self.variable(0)
        self.b.store(self.word(self.site, Site.FIRST), current)
        head, found = map(self.function.append_basic_block, ("find", "found"))
        used = self.b.shl(self.b.load(self.filled), self.constant(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        entry = self.b.load(current)
        self.miss_if(self.is_equal(entry, 0))
        self.b.store(self.word(entry, Entry.NEXT), current)
        with self.b.if_then(self.is_equal(self.word(entry, Entry.KEY_BYTES), used)):
            differ = self.call(Api.COMPARE, self.word(entry, Entry.KEY), self.key, used, result=I32)
            with self.b.if_then(self.is_equal(differ, 0)):
                with self.b.if_then(self.is_equal(self.word(entry, Entry.IS_VALID), 0)):
                    self.b.branch(found)
                stream = self._stream(entry)
                graph = self._out(lambda at: self.call(Api.IS_CAPTURING, stream, at, result=I32))
                self.miss_if(self.differs(graph, 0))
                number = self._out(lambda at: self.call(Api.STREAM_ID, stream, at, result=I32))
                with self.b.if_then(self.is_equal(number, self.word(entry, Entry.STREAM_ID))):
                    self.b.branch(found)
        self.b.branch(head)
        self.b.position_at_end(found)
        return entry

    def _make(self, maker: Any, index: Any) -> None:
        """Allocate an output that the call leaves out."""
        value = self.call(Api.CALL, maker)
        self.miss_if(self.is_equal(value, 0))
        self.store(value, self.at(self.objects, index))
        self.b.store(self.plus(self.b.load(self.made), 1), self.made)
        address = self._describe(value)
        self.miss_if(self.differs(self.b.and_(address, self.constant(15)), 0))
        self.store(address, self.at(self.places, index))

    def _check_overlap(self, entry: Any) -> None:
        """Miss if an output overlaps another tensor (argument, low, high, whether written)."""
        tensors, number = self.word(entry, Entry.TENSORS), self.word(entry, Entry.NUM_TENSORS)

        def span(tensor: Any) -> tuple[Any, Any]:
            place = self.word(self.places, self.word(tensor, 0))
            return self.plus(place, self.word(tensor, 1)), self.plus(place, self.word(tensor, 2))

        with self.loop(number) as i:
            one = self.at(tensors, self.b.shl(i, self.constant(2)))
            with self.b.if_then(self.differs(self.word(one, 3), 0)):
                low, high = span(one)
                with self.loop(number) as j:
                    start, end = span(self.at(tensors, self.b.shl(j, self.constant(2))))
                    meets = self.b.and_(
                        self.b.icmp_unsigned("<", start, high), self.b.icmp_unsigned("<", low, end)
                    )
                    self.miss_if(self.b.and_(meets, self.differs(i, j)))

    def _patch(self, entry: Any) -> None:
        """Write addresses (argument, where, whether a tensor map) and scalars (argument, where,
        whether it is an int, `Kind`).
        """
        patches = self.word(entry, Entry.PATCHES)
        with self.loop(self.word(entry, Entry.NUM_PATCHES)) as i:
            patch = self.plus(patches, self.b.mul(i, self.constant(24)))
            place, where = self.word(self.places, self.word(patch, 0)), self.word(patch, 1)
            with self.b.if_else(self.differs(self.word(patch, 2), 0)) as (then, otherwise):
                with then:
                    status = self.call(Api.REPLACE_ADDRESS, where, place, result=I32)
                    self.miss_if(self.differs(status, 0))
                with otherwise:
                    self.store(place, where)
        scalars = self.word(entry, Entry.SCALARS)
        with self.loop(self.word(entry, Entry.NUM_SCALARS)) as i:
            scalar = self.at(scalars, self.b.shl(i, self.constant(2)))
            place, where = self.word(self.places, self.word(scalar, 0)), self.word(scalar, 1)
            whole, kind = self.word(scalar, 2), self.word(scalar, 3)
            with self.b.if_else(self.is_equal(kind, Kind.F32)) as (then, otherwise):
                with then:
                    real = self.b.bitcast(place, F64)
                    real = self.b.select(self.differs(whole, 0), self.b.sitofp(place, F64), real)
                    bits = self.b.and_(self.b.bitcast(real, WORD), self.constant(MAGNITUDE))
                    self.miss_if(self.b.icmp_unsigned(">=", bits, self.constant(F32_LIMIT)))
                    self.store(self.b.fptrunc(real, F32), where)
                with otherwise:
                    number = self.b.trunc(place, I32)
                    ways = self.b.zext(number, WORD), self.b.sext(number, WORD)
                    wide = self.b.select(self.is_equal(kind, Kind.U32), *ways)
                    self.miss_if(self.differs(wide, place))
                    self.store(number, where)

    def _count(self, entry: Any) -> None:
        """Have autograd see that tensors were written."""
        number, which = self.word(entry, Entry.NUM_COUNTED), self.word(entry, Entry.COUNTED)
        with self.b.if_then(self.differs(number, 0)):
            written = self._tuple(number, which)
            self._count_tuple(written)
            self.call(Api.DECREF, written)
        written = self.word(entry, Entry.WRITTEN)
        with self.b.if_then(self.differs(written, 0)):
            self._count_tuple(written)

    def _count_tuple(self, written: Any) -> None:
        done = self.call(Api.CALL_ONE, self.word(self.api, Api.COUNT_WRITES), written)
        with self.b.if_else(self.is_equal(done, 0)) as (then, otherwise):
            with then:
                self.call(Api.CLEAR)
            with otherwise:
                self.call(Api.DECREF, done)

    def _tuple(self, number: Any, which: Any) -> Any:
        found = self.call(Api.NEW_TUPLE, number)
        with self.loop(number) as i:
            value = self.word(self.objects, self.word(which, i))
            self.call(Api.INCREF, value)
            self.call(Api.SET_ITEM, found, i, value, result=I32)
        return found

    def _return(self, entry: Any) -> None:
        number, which = self.word(entry, Entry.NUM_RESULTS), self.word(entry, Entry.RESULTS)
        with self.b.if_then(self.is_equal(number, 1)):
            value = self.word(self.objects, self.word(which, 0))
            self.call(Api.INCREF, value)
            self._drop_made()
            self.b.ret(value)
        found = self._tuple(number, which)
        self._drop_made()
        self.b.ret(found)

    def _drop_made(self) -> None:
        total = self.b.load(self.total)
        with self.loop(self.b.load(self.made)) as i:
            self.call(Api.DECREF, self.word(self.objects, self.plus(total, i)))

    def _missed(self) -> None:
        self.b.position_at_end(self.miss)
        self._drop_made()
        self.call(Api.CLEAR)
        found = self.word(self.api, Api.NOT_IMPLEMENTED)
        self.call(Api.INCREF, found)
        self.b.ret(found)


class InstanceCall(Builder):
    """`tp_call` of a type whose instances begin with the address of a site: repeat a known call
    without names. Other calls go to the next base type whose `tp_call` is another one.
    """

    def __init__(self, payload: int, module: ir.Module) -> None:
        super().__init__("call", 3, module)
        instance, arguments, names = self.function.args
        own, kind = self.word(instance, layout.FIRST_SLOT), self.word(instance, 1)
        own_call = self.word(kind, layout.TYPE_CALL)  # which may be replaced meanwhile
        self.miss_if(self.differs(names, 0))
        self.miss_if(self.is_equal(own, 0))
        self.api = self.word(self.load(self.plus(own, payload)), Site.API)
        recordings = self.word(self.api, Api.RECORDINGS)
        self.miss_if(self.differs(self.word(recordings, TUPLE_SIZE), 0))
        self.call(Api.INCREF, own)  # another thread may replace it
        given = self.at(arguments, TUPLE_ITEMS), self.word(arguments, TUPLE_SIZE)
        result = self.call(Api.REPEAT, own, *given, self.constant(0))
        self.call(Api.DECREF, own)
        missed = self.is_equal(result, self.word(self.api, Api.NOT_IMPLEMENTED))
        with self.b.if_then(missed):
            self.call(Api.DECREF, result)
        self.miss_if(missed)
        self.b.ret(result)
        self.b.position_at_end(self.miss)
        head, end = map(self.function.append_basic_block, "he")
        current = self.variable(0)
        self.b.store(kind, current)
        self.b.branch(head)
        self.b.position_at_end(head)
        base = self.word(self.b.load(current), layout.TYPE_BASE)
        self.b.store(base, current)
        call = self.word(base, layout.TYPE_CALL)
        self.b.cbranch(self.is_equal(call, own_call), head, end)
        self.b.position_at_end(end)
        function = self.b.inttoptr(call, ir.FunctionType(WORD, [WORD] * 3).as_pointer())
        self.b.ret(self.b.call(function, self.function.args))


def machine_code() -> bytes:
    """Both functions, for `bytes` objects of this Python, behind a header."""
    payload = bytes.__basicsize__ - 1
    stub = Stub(payload)
    InstanceCall(payload, stub.module)
    elf, size = stub.elf(), layout.HEADER_BYTES
    header = pack("<Q", size + native_ir.functions(elf)[1]).ljust(size, b"\0")
    return header + native_ir.instructions(elf)
