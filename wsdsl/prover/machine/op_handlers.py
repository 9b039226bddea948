"""How ops run on the abstract machine; an op without a handler is rejected by name (SCHEDULED)."""

from wsdsl.ir.op import THREADS, Op, by_op, effects
from wsdsl.prover import ops
from wsdsl.prover.machine.instructions import Run
from wsdsl.prover.machine.scalars import nothing, pure_value
from wsdsl.prover.memory.smem_effects import access_smem


def _usual(cls: type[Op]) -> Run | None:
    """Return the handler of ops of a class that need none of their own."""
    if THREADS[cls] == "kernel":
        return nothing
    return access_smem if effects(cls) else pure_value if cls.pure else None


HANDLERS: dict[type[Op], Run] = {
    **{cls: run for cls in THREADS if (run := _usual(cls)) is not None},
    **by_op(ops),
}
