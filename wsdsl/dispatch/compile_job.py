"""`python -m wsdsl.dispatch.compile_job`: a process that reads jobs and writes compiled kernels."""

from importlib import import_module

from wsdsl.ahead.jobs import run
from wsdsl.child_process import serve
from wsdsl.gc_pause import held_back

NEEDED = (
    "llvmlite.binding",
    "wsdsl.codegen.llvm_module",
    "wsdsl.codegen.ptxas",
    "wsdsl.lowering.shape_buckets",
)
"""Modules that import what a compile needs until ptxas runs; the others can be imported then."""

if __name__ == "__main__":
    with held_back():
        for name in NEEDED:
            import_module(name)
    serve(lambda job, tell: tell(run(job)))
