"""The contestants by name, and what each needs before the contests begin."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from unittest import mock

from benchmarks import ours
from benchmarks.contest import Contestant, reason
from benchmarks.machine import gpu

BASE = "torch"
PEERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "torch": ("torch_peer", ("torch",)),
    "quack": ("quack_peer", ("quack.gemm", "quack.epilogue")),
    "triton": ("triton_peer", ("triton",)),
    "pallas": ("pallas_peer", ("jax.experimental.pallas.ops.gpu.hopper_matmul_mgpu",)),
}
"""By name: our module, and what it imports; imported once, before any child is forked."""
USUAL = ["torch", "quack", "triton", "wsdsl"]
ENVIRONMENT = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    # Otherwise QuACK asks the GPU when it is imported: see `cuda_untouched`.
    "QUACK_ARCH": "90",
    "CUTE_DSL_ARCH": "sm_90a",
}


def names(text: Sequence[str]) -> list[str]:
    """Those asked for (`quack,wsdsl`), torch first; the usual ones if none are."""
    asked = [name for part in text for name in part.split(",") if name] or USUAL
    known = [*PEERS, "wsdsl"]
    for name in asked:
        if name not in known:
            raise ValueError(f"no contestant {name!r}; there are {', '.join(known)}")
    return list(dict.fromkeys([BASE, *asked]))


def field(
    asked: Sequence[str],
    schedules: Sequence[str],
    say: Callable[[str], None] = print,
) -> list[Contestant]:
    """Import them all. One that is not there stays, with no variant but the reason."""
    os.environ.update({k: v for k, v in ENVIRONMENT.items() if k not in os.environ})
    found: list[Contestant] = []
    for name in asked:
        if name == "wsdsl":
            found += ours.contestants(schedules)
            continue
        module, needed = PEERS[name]
        made: list[Contestant] = importlib.import_module(f"benchmarks.peers.{module}").contestants()
        try:
            with cuda_untouched():
                for package in needed:
                    importlib.import_module(package)
        except Exception as error:
            say(f"{name}: {reason(error)}")
            found += [absent(c, error) for c in made]
        else:
            found += made
    return found


@contextmanager
def cuda_untouched() -> Generator[None]:
    """Imports of QuACK's ask torch for a GPU; that would initialise CUDA in the one that forks."""
    import torch

    with mock.patch.object(torch.cuda, "is_available", return_value=bool(gpu())):
        yield


def absent(c: Contestant, error: Exception) -> Contestant:
    text = reason(error)

    def variants(_: object) -> list[object]:
        raise ImportError(text)

    return Contestant(c.name, variants)  # pyright: ignore[reportArgumentType]
