"""Emit a handler of XLA's FFI: a function that launches one kernel on the buffers of a call frame.
XLA may run it in several threads: arguments and configuration are copied to the stack.

Layouts: `xla/ffi/api/c_api.h` in `jax.ffi.include_dir()`.
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from llvmlite import ir

from wsdsl.artifact.signature import MapArgument, PointerArgument
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.runtime.native.native_ir import CONFIG_STREAM, I32, WORD, Builder
from wsdsl.runtime.packed_arguments import ALIGN
from wsdsl.runtime.prepared import Repeatable

EXTENSION, API, CONTEXT, ARGUMENTS, RESULTS = 1, 2, 3, 9, 14  # words of XLA_FFI_CallFrame
ERROR_CREATE, STREAM_GET, BUFFER_DATA = 6, 10, 3  # words of XLA_FFI_Api and XLA_FFI_Buffer
EXTENSION_TYPE, METADATA_EXTENSION, METADATA = 8, 1, 3  # byte, its value, word
METADATA_FIELDS = 24, 28, 32  # bytes of major and minor version and traits in XLA_FFI_Metadata
COMMAND_BUFFER = 1  # trait: compatible; one launch, which depends on addresses alone
INTERNAL, ERROR_BYTES, STREAM_BYTES = 13, 28, 32  # XLA_FFI_Error_Code, sizes of arguments
INVALID_CONTEXT, MISALIGNED_ADDRESS = 201, 716  # CUresults
CONFIG_WORDS, MESSAGE_WORDS = 7, 32
CURRENT, REPLACE_ADDRESS, LAUNCH, ERROR_NAME, FORMAT = range(5)
DRIVER = "cuCtxGetCurrent", "cuTensorMapReplaceAddress", "cuLaunchKernelEx", "cuGetErrorName"
Operands = Mapping[str, tuple[int, int]]
"""Of each tensor, ARGUMENTS or RESULTS, and the index there."""


class Handler(Builder):
    """A handler for launches of a kernel, one per CUDA context. `version`: major and minor of the
    FFI; `driver`: the library.
    """

    def __init__(
        self, name: str, calls: Sequence[Repeatable], operands: Operands, version: Any, driver: Any
    ) -> None:
        super().__init__("handler", 1)
        (self.frame,) = self.function.args
        self.calls, self.operands, packed = calls, operands, calls[0].packed
        self.message = ctypes.create_string_buffer(f"WS1123 launch of {name} failed: %s".encode())
        functions = *(getattr(driver, x) for x in DRIVER), ctypes.CDLL(None).snprintf
        addresses = [ctypes.cast(x, ctypes.c_void_p).value for x in functions]
        self.functions = (ctypes.c_uint64 * len(addresses))(*addresses)
        self.api = self.constant(ctypes.addressof(self.functions))
        self.struct, self.text = self.array(4), self.array(MESSAGE_WORDS)
        words, self.status = -(-packed.size // 8), self.b.alloca(I32)
        copy, config = self.array(words, ALIGN), self.array(CONFIG_WORDS)
        table = self.array(len(packed.arguments))
        extension = self.word(self.frame, EXTENSION)
        with self.b.if_then(self.differs(extension, 0)):
            kind = self.load(self.plus(extension, EXTENSION_TYPE), I32)
            with self.b.if_then(self.is_equal(kind, METADATA_EXTENSION)):
                metadata, values = self.word(extension, METADATA), (*version, COMMAND_BUFFER)
                for at, value in zip(METADATA_FIELDS, values, strict=True):
                    self.store(I32(value), self.plus(metadata, at))
                self.b.ret(self.constant(0))
        error = self._call_xla(STREAM_GET, STREAM_BYTES, 0, self.word(self.frame, CONTEXT), 0)
        with self.b.if_then(self.differs(error, 0)):
            self.b.ret(error)
        stream = self.word(self.struct, 3)
        function, source, own = self._call_of_context()
        for place, target, size in (self.word(source, 0), copy, words), (own, config, CONFIG_WORDS):
            with self.loop(self.constant(size)) as i:
                self.store(self.word(place, i), self.at(target, i))
        self.store(stream, self.plus(config, CONFIG_STREAM))
        for i, (argument, offset) in enumerate(zip(packed.arguments, packed.offsets, strict=True)):
            where = self.plus(copy, offset)
            self.store(where, self.at(table, i))
            if isinstance(argument, MapArgument):
                self._check(REPLACE_ADDRESS, where, self._data(argument.tensor))
            elif isinstance(argument, PointerArgument):
                self.store(self._data(argument.tensor), where)
        self._check(LAUNCH, config, function, table, self.constant(0))
        self.b.ret(self.constant(0))
        self._return_error()

    def _call_xla(self, which: int, *fields: Any) -> Any:
        """Call a function of XLA_FFI_Api with a struct of these words."""
        for i, value in enumerate(fields):
            value = value if isinstance(value, ir.Value) else self.constant(value)
            self.store(value, self.at(self.struct, i))
        kind = ir.FunctionType(WORD, [WORD]).as_pointer()
        function = self.b.inttoptr(self.word(self.word(self.frame, API), which), kind)
        return self.b.call(function, [self.struct])

    def _check(self, which: int, *arguments: Any) -> None:
        status = self.call(which, *arguments, result=I32)
        self._fail_if(self.differs(status, 0), status)

    def _fail_if(self, condition: Any, status: Any) -> None:
        self.b.store(status if isinstance(status, ir.Value) else I32(status), self.status)
        self.miss_if(condition)

    def _call_of_context(self) -> list[Any]:
        """Function, table of arguments and configuration for the current context."""
        self._check(CURRENT, self.struct)
        context, found = self.word(self.struct, 0), [self.constant(0)] * 3
        for call in self.calls:
            is_current = self.is_equal(context, int(call.kernel.context.handle))
            own = int(call.kernel.handle), call.packed.address, int(call.config.getPtr())
            pairs = zip(map(self.constant, own), found, strict=True)
            found = [self.b.select(is_current, x, other) for x, other in pairs]
        self._fail_if(self.is_equal(found[0], 0), INVALID_CONTEXT)
        return found

    def _data(self, tensor: str) -> Any:
        """Address of a tensor's buffer."""
        buffers, index = self.operands[tensor]
        address = self.word(self.word(self.word(self.frame, buffers), index), BUFFER_DATA)
        rest = self.b.and_(address, self.constant(TMA_ALIGN - 1))
        self._fail_if(self.differs(rest, 0), MISALIGNED_ADDRESS)
        return address

    def _return_error(self) -> None:
        self.b.position_at_end(self.miss)
        self.call(ERROR_NAME, self.b.load(self.status), self.struct, result=I32)
        numbers = 8 * MESSAGE_WORDS, ctypes.addressof(self.message)
        parts = self.text, *map(self.constant, numbers), self.word(self.struct, 0)
        self.call(FORMAT, *parts, result=I32, fixed=3)
        self.b.ret(self._call_xla(ERROR_CREATE, ERROR_BYTES, 0, self.text, INTERNAL))
