"""Calls that torch.compile does not follow."""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
REASON = "a kernel of wsdsl is compiled already; leave fullgraph=True out, or call it outside"


def opaque(call: F, arranged: Callable[..., Any] | None = None) -> F:
    """Where torch.compile ends its graph, and compiles nothing of what is run. Of a call by name
    `arranged` makes the arguments.
    """

    @functools.wraps(call)
    def run(*args: Any, **named: Any) -> Any:
        if "torch._dynamo" in sys.modules:
            torch: Any = sys.modules["torch"]
            now = torch._C._dynamo.eval_frame.get_eval_frame_callback
            # Dynamo, which comes to this frame behind the graph, takes the former for true.
            if torch.compiler.is_dynamo_compiling() or now() is not None:
                return torch.compiler.disable(run)(*args, **named)
        if named and arranged is not None:
            args, named = arranged(call, named, *args)
        return call(*args, **named)

    vars(run).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=REASON)
    return run  # pyright: ignore[reportReturnType]
