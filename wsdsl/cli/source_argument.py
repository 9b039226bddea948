"""FILE[:KERNEL]: the kernel that a command is about."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import wsdsl
from wsdsl.cli.options import UsageError, check_names
from wsdsl.diagnostics import Finding, WsdslError
from wsdsl.ir.op import Kernel as IrKernel
from wsdsl.ir.ops import Store

CACHE_OFF = Finding("WS1022 the cache is off", hint="set WSDSL_CACHE_DIR to a directory")


def is_ir(target: str) -> bool:
    return target.endswith(".ir")


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"WS1023 cannot read {path}: {why}") from error


def load_kernel(target: str) -> Any:
    """The kernel that FILE[:KERNEL] names; a file of one kernel need not name it."""
    kernels = load_kernels(target)
    if len(kernels) > 1:
        hint = f"give {' or '.join(f'{target}:{k.name}' for k in kernels)}"
        raise UsageError(f"WS1024 {target} has {len(kernels)} kernels, expected one", hint=hint)
    return kernels[0]


def load_kernels(target: str) -> list[Any]:
    """The kernel that FILE:KERNEL names, or all of a FILE's."""
    file, _, name = target.partition(":")
    path = Path(file)
    if path.suffix not in (".py", ".ws"):
        what = "dumped IR" if path.suffix == ".ir" else "not a kernel's source file"
        raise UsageError(f"WS1025 `{file}` is {what}", hint="give the kernel's .py or .ws file")
    read(path)
    held = vars(wsdsl.load(file) if path.suffix == ".ws" else import_file(path))
    kernels = {k: v for k, v in held.items() if isinstance(v, wsdsl.Kernel)}
    if not kernels:
        raise UsageError(f"WS1026 {file} has no kernel", hint="decorate a function with @kernel")
    if name:
        check_names([name], list(kernels), "kernel", file)
        return [kernels[name]]
    return list(kernels.values())


def import_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except WsdslError:
        raise
    except Exception as error:
        message = f"WS1027 importing {path} failed: {type(error).__name__}: {error}"
        raise UsageError(message, hint=f"run `python {path}` for the traceback") from error
    finally:
        sys.path.pop(0)
    return module


def require_gpu(alternative: str = "") -> None:
    from wsdsl.runtime.device import gpu_available, needed_device

    if not gpu_available():
        hint = f"use a GPU of {needed_device()}; `wsdsl doctor` lists missing parts{alternative}"
        raise UsageError("WS1028 no supported GPU was found", hint=hint)


def outputs(kernel: IrKernel) -> list[Any]:
    """The parameters that a kernel stores to, in the order of the call."""
    stored = {op.tensor.name for op in kernel.of(Store)}
    return [p for p in kernel.params if p.name in stored]
