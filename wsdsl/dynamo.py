"""Calls that torch.compile does not follow."""

import functools
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
REASON = (
    "a wsdsl kernel is already compiled: call an operator of kernel.torch_op(…) instead, "
    "or leave fullgraph=True out"
)
_modules = sys.modules


_skipped = set[CodeType]()


def marked(call: F, skipped: bool = False) -> F:
    """Have torch.compile end its graph at calls of a function. It begins with `followed`, or its
    code is `skipped`: run as it is, once `skip_marked` has been called.
    """
    vars(call).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=REASON)
    if skipped:
        _skipped.add(call.__code__)
    return call


def skip_marked() -> None:
    """Have Dynamo compile no frame of the functions that are marked as skipped."""
    frames: Any = _modules["torch"]._C._dynamo.eval_frame
    while _skipped:
        code = _skipped.pop()
        if hasattr(frames, "skip_code"):
            frames.skip_code(code)
        else:
            action = frames._FrameAction
            strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
            frames.set_code_exec_strategy(code, strategy)


def followed() -> bool:
    """Whether Dynamo would compile the frame that asks."""
    if "torch._dynamo" not in _modules:
        return False
    torch: Any = _modules["torch"]
    now = torch._C._dynamo.eval_frame.get_eval_frame_callback
    # Dynamo, which reaches this frame after the graph, takes the former for true.
    return torch.compiler.is_dynamo_compiling() or now() is not None


def outside(call: F) -> F:
    """Exclude a function, and all that it calls, from compilation by Dynamo."""
    return _modules["torch"].compiler.disable(call)


def opaque(
    call: F, arranged: Callable[..., Any] | None = None, traced: Callable[..., Any] | None = None
) -> F:
    """Make a function opaque to torch.compile: a graph break that is not compiled. `arranged` maps
    a call with keywords to positional arguments. Traces call `traced`, unless it returns None.
    """

    @functools.wraps(call)
    def run(*args: Any, **named: Any) -> Any:
        if "torch._dynamo" in _modules and followed():
            return outside(run)(*args, **named)
        if named and arranged is not None:
            args, named = arranged(named, *args)
        return call(*args, **named)

    marked(run)
    if traced is None:
        return run  # pyright: ignore[reportReturnType]

    @functools.wraps(call)
    def either(*args: Any, **named: Any) -> Any:
        if "torch._dynamo" in _modules and is_traced():
            result = traced(*args, **named)
            if result is not None:
                return result
        return run(*args, **named)

    return either  # pyright: ignore[reportReturnType]


def is_compiling() -> bool:
    """Check whether Dynamo compiles the caller."""
    return _modules["torch"].compiler.is_dynamo_compiling()


def is_traced() -> bool:
    """Check whether Dynamo compiles the caller, or a dispatch mode traces operators."""
    return is_compiling() or _modules["torch"]._C._len_torch_dispatch_stack() > 0
