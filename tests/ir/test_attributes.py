"""Every attribute of every op in sample kernels, given odd values: refused, or known to mean the
same to all.

What is odd is drawn from the attribute's type alone, so that a new op or attribute is tried too.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulator.kernels import sample
from tests.simulator.mutants import exchange
from tests.simulator.test_samples import NAMES
from wsdsl.codegen.llvm_module import emit_llvm
from wsdsl.codegen.ptx_emission import emit_ptx
from wsdsl.diagnostics import ProofError, VerifyError
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.parser import OPS
from wsdsl.ir.printer import print_head
from wsdsl.ir.rewriter import walk
from wsdsl.ir.verify.attribute_ranges import typed_attributes
from wsdsl.ir.verify.threads import THREADS, misplaced, threads_of
from wsdsl.ir.verify.verifier import verify
from wsdsl.prover.prove import prove

SCHEDULED = {cls for cls in OPS.values() if "scheduled" in cls.levels}
WRONG: dict[type, tuple[Any, ...]] = {
    int: (-(2**40), -1, 2**40, True, 1.0, None),
    str: ("", "nothing", 1),
    bool: (None, 2, ""),
}
"""Of another type, or in no op's range."""
MEANT = {("offset", -1), ("row_dim", -1), ("amount", -1)}
"""No place yet, which codegen refuses; along no dimension; a flag that is lowered."""
FREE = {"role", "label", "turns", "b_dtype"}
"""Text that means nothing, or may be left out."""


def with_attribute(kernel: Kernel, op: Op, name: str, value: object) -> Kernel:
    at = next(n for n, one in enumerate(walk(kernel.body)) if one is op)
    return exchange(kernel, at, dataclasses.replace(op, **{name: value}))


def first_ops(kernel: Kernel) -> Iterator[Op]:
    """One of each class."""
    seen: set[type[Op]] = set()
    for op in walk(kernel.body):
        if type(op) not in seen:
            seen.add(type(op))
            yield op


def test_every_attribute_has_a_range_and_every_op_its_threads() -> None:
    assert set(THREADS) == SCHEDULED
    for cls in SCHEDULED:
        known = typed_attributes(cls)
        assert all((hint is bool) == (told is None) for _, hint, told in known), op_name(cls)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_in_no_range_is_refused(name: str) -> None:
    kernel, missed = sample(name), list[str]()
    for op in first_ops(kernel):
        for attribute, hint, _ in typed_attributes(type(op)):
            for value in WRONG.get(hint, (None, (1.5,), ((-1,),), "x")):
                if attribute in FREE and isinstance(value, str):
                    continue
                try:
                    verify(with_attribute(kernel, op, attribute, value))
                except VerifyError:
                    continue
                if (attribute, value) not in MEANT:
                    missed.append(f"{attribute}={value!r} of {print_head(op)}")
    assert missed == []


def test_what_is_in_range_is_refused_or_emitted_as_it_says() -> None:
    """A mutant that is proved is emitted as something else, or its attribute is a promise that the
    card has no instruction for.
    """
    kernel = sample("gemm")
    ptx, alike = emit_ptx(emit_llvm(kernel)), set[str]()
    for op in first_ops(kernel):
        for attribute, hint, _ in typed_attributes(type(op)):
            if hint not in (bool, int):
                continue
            held = getattr(op, attribute)
            mutant = with_attribute(kernel, op, attribute, not held if hint is bool else held + 2)
            try:
                prove(mutant)
            except (VerifyError, ProofError):
                continue
            if emit_ptx(emit_llvm(mutant)) == ptx:
                alike.add(f"{op_name(type(op))}.{attribute}")
    assert alike <= {
        "launch_grid.overlapping",
        "launch_grid.ragged",
        "cast.saturate",
        "load_global.in_order",
    }


@pytest.mark.parametrize("name", NAMES)
def test_ops_of_a_warp_or_more_are_refused_in_an_elect(name: str) -> None:
    from wsdsl.ir.ops import Elect

    kernel, missed = sample(name), list[str]()
    for at, op in enumerate(walk(kernel.body)):
        if threads_of(op) in ("warps", "warpgroup", "cta"):
            try:
                verify(exchange(kernel, at, Elect(body=(op,))))
                missed.append(print_head(op))
            except VerifyError:
                assert misplaced(op, True)[0]
    assert missed == []
