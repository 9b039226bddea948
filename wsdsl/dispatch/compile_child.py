"""Compile jobs; `python -m wsdsl.dispatch.compile_child` reads jobs and writes results."""

from functools import lru_cache
from importlib import import_module

from wsdsl import config
from wsdsl.ahead.jobs import Built, Failed, Job
from wsdsl.artifact.artifact import Artifact, Choice
from wsdsl.artifact.serialization import Entry, to_bytes
from wsdsl.background import num_processes
from wsdsl.child_process import serve
from wsdsl.diagnostics import Finding, ScheduleError, WsdslError
from wsdsl.dispatch.variants import Variants
from wsdsl.gc_pause import held_back
from wsdsl.ir.op import Kernel
from wsdsl.records import card
from wsdsl.schedule import Schedule

NEEDED = (
    "llvmlite.binding",
    "wsdsl.codegen.llvm_module",
    "wsdsl.codegen.ptxas",
    "wsdsl.lowering.shape_buckets",
)
"""Modules that import all others of a compile before ptxas, which are imported in advance."""


def compile_job(job: Job) -> Built | Failed:
    num_processes.set(job.num_processes)
    card.inherited.set(job.gpus)
    try:
        with held_back(), config.override(**job.config):
            return _build(job)
    except WsdslError as error:
        return Failed(error.findings, isinstance(error, ScheduleError))
    except Exception as error:
        return Failed((Finding(f"WS1030 {type(error).__name__}: {error}"),))


def _build(job: Job) -> Built:
    variants, sizes = _variants(job.text, job.key, job.tile), dict(job.sizes)
    given = job.schedule, sizes, job.unaligned, job.padded
    request = (
        variants.request(*given, shared=job.shared)
        if job.exact
        else variants.bucket_request(*given)
    )
    compiled = variants.build(request)
    choice = Choice(compiled.source.schedule or Schedule(), compiled.notes)
    value: tuple[Choice, Artifact] = choice, compiled.artifact
    shared = variants.representatives(*given) if request.shared and not job.exact else None
    return Built(request.sizes, to_bytes(Entry(job.text, "", value)), request.shared, shared)


@lru_cache(maxsize=64)
def _variants(text: str, key: str | None, tile: Kernel | None) -> Variants:
    if tile is None:
        from wsdsl.ir.parser import parse_kernel

        tile = parse_kernel(text)
    return Variants(key, lambda: tile)


if __name__ == "__main__":
    with held_back():
        for name in NEEDED:
            import_module(name)
    serve(lambda job, tell: tell(compile_job(job)))
