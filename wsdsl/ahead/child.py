"""A process that compiles: `python -m wsdsl.ahead.child` reads jobs, and writes what it made."""

from importlib import import_module

from wsdsl.ahead.jobs import run
from wsdsl.child_process import serve
from wsdsl.collector import held_back

NEEDED = (
    "llvmlite.binding",
    "wsdsl.codegen.emit",
    "wsdsl.codegen.module",
    "wsdsl.codegen.ptxas",
    "wsdsl.lowering.stand_ins",
    "wsdsl.prover.early_accesses",
    "wsdsl.prover.prove",
    "wsdsl.prover.skeleton",
)
"""Modules that import all that a compile needs."""

if __name__ == "__main__":
    with held_back():
        for name in NEEDED:
            import_module(name)
        import_module("wsdsl.ir.parser").grammar()
    serve(lambda job, tell: tell(run(job)))
