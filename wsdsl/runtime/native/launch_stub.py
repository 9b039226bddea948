"""Known calls of one function, repeated by native code: a launch at the addresses of new arrays.

The function of `launch_stub_ir` looks at the arguments (torch tensors, by DLPack's C exchange
interface, numbers, and constants by identity), finds the entry of a call that looked the same,
writes addresses and scalars into its packed arguments, and launches. It returns NotImplemented if
no entry matches. All of it runs under the GIL.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import GetSetDescriptorType
from typing import Any

from wsdsl.dynamo import skip_marked
from wsdsl.runtime.native import launch_table as layout
from wsdsl.runtime.native.launch_table import Api, Entry, Kind, Site
from wsdsl.runtime.native.native_code import cached, code_of, key_of
from wsdsl.runtime.native.recorded_launches import Repeatable, recordings
from wsdsl.schedule import Schedule

Key = tuple[int, ...]
MAX_ENTRIES, WORD = 256, 8
FLAGS = 0x80 | 0x02
"""METH_FASTCALL | METH_KEYWORDS."""
STUB = "launch stub"
KINDS = {"f32": Kind.F32, "i32": Kind.I32, "u32": Kind.U32}
DLPACK_API = b"dlpack_exchange_api"
PYTHON = {
    Api.CLEAR: "PyErr_Clear",
    Api.GET_ATTRIBUTE: "PyObject_GetAttr",
    Api.CALL: "PyObject_CallNoArgs",
    Api.CALL_ONE: "PyObject_CallOneArg",
    Api.NEW_TUPLE: "PyTuple_New",
    Api.SET_ITEM: "PyTuple_SetItem",
    Api.AS_DOUBLE: "PyFloat_AsDouble",
    Api.AS_LONG: "PyLong_AsLongLongAndOverflow",
    Api.INCREF: "Py_IncRef",
    Api.DECREF: "Py_DecRef",
}
DRIVER = {
    Api.CONTEXT: "cuCtxGetCurrent",
    Api.CONTEXT_ID: "cuCtxGetId",
    Api.REPLACE_ADDRESS: "cuTensorMapReplaceAddress",
    Api.LAUNCH: "cuLaunchKernelEx",
    Api.STREAM_ID: "cuStreamGetId",
    Api.IS_CAPTURING: "cuStreamIsCapturing",
}


class _Exchange(ctypes.Structure):
    """DLPackExchangeAPI of DLPack 1.2."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        *((x, ctypes.c_void_p) for x in ("previous", "allocate", "take", "give", "view", "stream")),
    )


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Address(bytes):
    """The site's address, as the native function receives it; keeps what that reads alive."""

    held: tuple[object, ...]


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(1, len(values)))(*values)


class TorchApi:
    """The table of addresses; AttributeError, KeyError or OSError where something is missing."""

    def __init__(self) -> None:
        torch: Any = sys.modules["torch"]
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        capsule = torch.Tensor.__dlpack_c_exchange_api__
        exchange = _Exchange.from_address(get(capsule, DLPACK_API))
        if exchange.major != 1 or not exchange.view or not exchange.stream:
            raise AttributeError("another version of DLPack's exchange interface")
        call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
        self.view = call(exchange.view)
        self.objects: dict[Api, Any] = {
            Api.TENSOR: torch.Tensor, Api.PARAMETER: torch.nn.Parameter, Api.FLOAT: float,
            Api.LONG: int, Api.TRUE: True, Api.NOT_IMPLEMENTED: NotImplemented,
            Api.NONE_TYPE: type(None), Api.BOOL: bool, Api.STR: str, Api.TUPLE: tuple,
            Api.DTYPE: torch.dtype,
            Api.GRAD_ENABLED: torch.is_grad_enabled,
            Api.AUTOCAST: torch._C._is_any_autocast_enabled,
            Api.DISPATCH_MODES: torch._C._len_torch_dispatch_stack,
            Api.FORWARD_AD: sys.modules["torch.autograd.forward_ad"],
            Api.LEVEL: sys.intern("_current_level"),
            Api.COUNT_WRITES: torch._C._increment_version,
            Api.TRACING: torch._C._is_tracing, Api.IS_NEGATED: torch.Tensor.is_neg,
            Api.SCHEDULE: Schedule, Api.RECORDINGS: recordings,
        }  # fmt: skip
        table = {which: id(value) for which, value in self.objects.items()}
        table |= {Api.DLTENSOR: exchange.view, Api.STREAM: exchange.stream}
        table[Api.REQUIRES_GRAD] = _getter(torch.Tensor.requires_grad)
        libraries = (PYTHON, ctypes.pythonapi), (DRIVER, ctypes.CDLL("libcuda.so.1"))
        for names, library in (*libraries, ({Api.COMPARE: "memcmp"}, ctypes.CDLL(None))):
            for which, name in names.items():
                table[which] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        table[Api.REPEAT] = _code() + layout.HEADER_BYTES
        self.tensors = torch.Tensor, torch.nn.Parameter
        self.table = _words([table[which] for which in Api])
        self.constants = tuple(self.objects[which] for which in layout.CONSTANTS)


def _getter(descriptor: Any) -> int:
    """The C function of a PyGetSetDescrObject, which has its PyGetSetDef behind five words."""
    if type(descriptor) is not GetSetDescriptorType:
        raise AttributeError("another kind of attribute")
    (definition,) = (ctypes.c_int64 * 1).from_address(id(descriptor) + 5 * WORD)
    return (ctypes.c_int64 * 2).from_address(definition)[1]


def torch_api() -> TorchApi | None:
    """The table for torch; None where the stub cannot run."""
    return _torch_api() if "torch" in sys.modules else None


@cache
def _torch_api() -> TorchApi | None:
    try:
        return TorchApi() if _method() else None  # whose addresses depend on the same layout
    except (AttributeError, ImportError, OSError, KeyError):
        return None


@cache
def _method() -> _Method | None:
    """The native function; None where it cannot run."""
    if object.__basicsize__ != 2 * WORD:  # of a free-threaded build, even with the GIL
        return None
    return _Method(b"launch", _code() + layout.HEADER_BYTES, FLAGS, b"Repeat a known call.")


@cache
def _code() -> int:
    return cached(STUB, _emit)


def _words_of(held: object, number: int) -> Any:
    """The first words of an object."""
    return (ctypes.c_uint64 * number).from_address(id(held))


def answer(callee: Any, calls: Calls) -> None:
    """Have native code answer known calls of an object, instead of the `__call__` of its class. The
    first base class has a `__call__`, and `_native` in `__slots__`.
    """
    kind, callee._native = type(callee), calls.own
    root, size = kind.mro()[-2], layout.TYPE_BASE + 1
    words, inherited = _words_of(kind, size), _words_of(root, size)[layout.TYPE_CALL]
    is_known = (
        _words_of(callee, layout.FIRST_SLOT + 1)[layout.FIRST_SLOT] == id(calls.own)
        and words[layout.TYPE_BASE] == id(kind.__base__)
        and not _words_of(object, size)[layout.TYPE_CALL]
    )
    if is_known and words[layout.TYPE_CALL] == inherited and kind is not root:
        words[layout.TYPE_CALL] = _code() + ctypes.c_uint64.from_address(_code()).value


def shipped_code() -> tuple[str, bytes]:
    """Key and machine code of the native function, for processes that cannot emit it."""
    return key_of(STUB), code_of(STUB, _emit)


def _emit() -> bytes:
    from wsdsl.runtime.native.launch_stub_ir import machine_code

    return machine_code()


@dataclass
class Repetition:
    """A known call. Indices are those of its arguments, positional ones first; after these are the
    outputs that `makers` allocate.

    tensors: argument, first and last byte from its address, and whether it is written
    scalars: argument, name and type
    """

    call: Repeatable
    places: Mapping[str, int] = field(default_factory=dict[str, int])
    tensors: Sequence[tuple[int, int, int, bool]] = ()
    scalars: Sequence[tuple[int, str, str]] = ()
    makers: Sequence[Callable[[], Any]] = ()
    results: Sequence[int] = ()
    counted: Sequence[int] = ()
    written: tuple[Any, ...] = ()
    """Tensors that are written, which are no arguments."""
    stream: int | None = None
    """None: torch's current one."""


@dataclass
class Calls:
    """The known calls of one function; `launch` is the native function."""

    api: TorchApi
    is_operator: bool = True
    launch: Callable[..., Any] = field(init=False)
    own: bytes = field(init=False)
    _entries: dict[Key, Any] = field(default_factory=dict[Key, Any])
    _invalid: list[object] = field(default_factory=list[object])
    """Entries whose workspace was replaced."""

    def __post_init__(self) -> None:
        skip_marked()
        self.site = _words([ctypes.addressof(self.api.table), 0, self.is_operator])
        method = _method() or _Method()
        own = self.own = _Address(struct.pack("<Q", ctypes.addressof(self.site)))
        # Not `self`, whose `launch` would close a cycle: written tensors would await the collector.
        own.held = method, self.api, self.site, self._entries, self._invalid
        new = ctypes.pythonapi.PyCFunction_NewEx
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
        self.launch = new(ctypes.addressof(method), own, None)

    @property
    def is_full(self) -> bool:
        return len(self._entries) + len(self._invalid) >= MAX_ENTRIES

    def add(self, args: tuple[Any, ...], named: Mapping[str, Any], known: Repetition) -> None:
        """Know a call with these arguments."""
        if self.is_known(args, named, known.call.stream_id):
            return
        values, key = [*args, *named.values()], self._key(args, named)
        call, patches, scalars = known.call, list[int](), list[int]()
        for name, where, is_map in call.pointers():
            if name in known.places:
                patches += known.places[name], where, is_map
        where = dict(call.scalars())
        for i, name, dtype in known.scalars:
            scalars += i, where[name], type(values[i]) is int, KINDS[dtype]
        tensors = [word for tensor in known.tensors for word in tensor]
        makers = [id(maker) for maker in known.makers]
        lists = key, tensors, patches, scalars, makers, known.results, known.counted
        held = [_words(words) for words in lists]
        at, context = [ctypes.addressof(words) for words in held], call.kernel.context
        words = {
            Entry.NEXT: 0, Entry.KEY: at[0], Entry.KEY_BYTES: WORD * len(key),
            Entry.CONTEXT: int(context.handle), Entry.CONTEXT_ID: context.id,
            Entry.DEVICE: context.device.index if known.stream is None else -1,
            Entry.FIXED_STREAM: known.stream or 0, Entry.CONFIG: call.config.getPtr(),
            Entry.WRITTEN: id(known.written) if known.written else 0,
            Entry.FUNCTION: int(call.kernel.handle), Entry.PARAMETERS: call.packed.address,
            Entry.IS_VALID: ctypes.addressof(call.is_valid) if call.is_valid else 0,
            Entry.STREAM_ID: call.stream_id,
            Entry.TENSORS: at[1], Entry.NUM_TENSORS: len(known.tensors),
            Entry.PATCHES: at[2], Entry.NUM_PATCHES: len(patches) // 3,
            Entry.SCALARS: at[3], Entry.NUM_SCALARS: len(scalars) // 4,
            Entry.MAKERS: at[4], Entry.NUM_MAKERS: len(makers),
            Entry.RESULTS: at[5], Entry.NUM_RESULTS: len(known.results),
            Entry.COUNTED: at[6], Entry.NUM_COUNTED: len(known.counted),
        }  # fmt: skip
        entry = _words([words[which] for which in Entry])
        constants = [x for x in values if isinstance(x, self.api.constants)]
        added = entry, held, known, constants, [*named]
        # Another thread may have added one, which may be in use: it is not replaced.
        if self._entries.setdefault((*key, call.stream_id), added) is added:
            entry[Entry.NEXT] = self.site[Site.FIRST]
            self.site[Site.FIRST] = ctypes.addressof(entry)

    def is_known(self, args: tuple[Any, ...], named: Mapping[str, Any], stream_id: int) -> bool:
        """Whether there is an entry for a call with these arguments; `stream_id`: of a workspace's
        stream, or 0.
        """
        key = *self._key(args, named), stream_id
        found = self._entries.get(key)
        if found and (valid := found[2].call.is_valid) is not None and not valid.value:
            self._invalid.append(self._entries.pop(key, None))
            return False
        return found is not None

    def _key(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[int, ...]:
        words = (word for x in (*args, *named.values()) for word in self._look(x))
        return (len(args), *map(id, named), *words)

    def _look(self, x: Any) -> list[int]:
        """The words that the native function compares."""
        if type(x) in (int, float):
            return [id(type(x)), int(x > 0)]
        if type(x) not in self.api.tensors:
            return [id(type(x)), id(x)]
        view = (ctypes.c_int64 * 6)()
        self.api.view(x, ctypes.addressof(view))
        data, device, kind, shape, strides, offset = view
        dims = kind & 0xFFFFFFFF
        sizes = ((ctypes.c_int64 * dims).from_address(at) for at in (shape, strides) if dims)
        return [device, kind, *(n for each in sizes for n in each), (data + offset) & 15]
