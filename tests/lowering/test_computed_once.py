"""A compile computes each fact of a kernel once."""

import dataclasses
from collections import Counter
from typing import Any

import pytest

from tests.kernels import CASES
from wsdsl.codegen.llvm_module import emit_llvm
from wsdsl.ir.op import THREADS
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.pipeline import lower

Calls = Counter[tuple[int, ...]]


def count(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, kept: list[Any]) -> Calls:
    """Count the calls of a function by the identity of its arguments."""
    calls, function = Calls(), getattr(owner, name)

    def counting(*args: Any, **named: Any) -> Any:
        kept.append(args)  # Ids of freed arguments would be used again.
        calls[tuple(map(id, args))] += 1
        return function(*args, **named)

    monkeypatch.setattr(owner, name, counting)
    return calls


@pytest.mark.parametrize("name", ["gemm", "epilogue", "attention", "row_softmax"])
def test_effects_and_workloads_are_computed_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, kept = CASES[name], list[Any]()
    whole = [(dim, case.sizes[dim]) for dim in case.kernel.whole_dims]
    kernel = dataclasses.replace(case.kernel.tile_ir, sizes=tuple(whole))
    classes = [cls for cls in THREADS if "effects" in vars(cls)]
    effects = [count(monkeypatch, cls, "effects", kept) for cls in classes]
    works = count(monkeypatch, Work, "__init__", kept)
    scheduled = lower(kernel, sizes=case.sizes)
    emit_llvm(scheduled)
    made = id(scheduled.definers)
    own = [num for calls in effects for (_, of), num in calls.items() if of == made]
    assert own and set(own) == {1}
    assert set(Counter(kernel for _, kernel, *_ in works).values()) == {1}
