"""The table of what crosses between partitions, and which partition runs what."""

from __future__ import annotations

import dataclasses

import pytest

from tests.decoded_kernels import DECODED
from tests.kernels import CASES
from tests.lowering.test_epilogue_operands import KERNEL as RESIDUAL
from wsdsl import Schedule
from wsdsl.compiler import Kernel
from wsdsl.ir.op import Kernel as Lowered
from wsdsl.ir.op import op_name
from wsdsl.ir.tile_ops import Load
from wsdsl.lowering.assign_roles import assign_roles
from wsdsl.lowering.edges import assign_partitions, edges
from wsdsl.lowering.passes.fuse_accumulators import fuse_accumulators
from wsdsl.lowering.passes.hoist_loads import hoist_loads
from wsdsl.lowering.passes.move_factors import move_factors

KERNELS = {
    "gemm": CASES["gemm"].kernel,
    "decoded": DECODED["scaled"].kernel,
    "scaled": CASES["block_scaled"].kernel,
    "residual": RESIDUAL,
    "attention": CASES["attention"].kernel,
}


def tile(kernel: Kernel, schedule: Schedule) -> Lowered:
    made = dataclasses.replace(kernel.tile, schedule=schedule)
    for step in (move_factors, fuse_accumulators, hoist_loads, assign_roles):
        made = step(made)
    return made


ROWS = {
    "gemm": """
A: load -> mma; SMEM bf16[m, k]; k, ring 0 (stages)
B: load -> mma; SMEM bf16[n, k]; k, ring 0 (stages)
acc_2: mma -> store; registers f32[m, n]; k -> tile
""",
    "decoded": """
W: load -> decode; SMEM i8[n, k]; k, ring 1 (stages)
t_7: decode -> mma; SMEM f16[n, k]; k, ring 0 (stages)
X: load -> mma; SMEM f16[m, k]; k, ring 2 (stages)
acc_2: mma -> store; registers f32[m, n]; k -> tile
""",
    "scaled": """
A: load -> mma; SMEM f8e4m3[m, k]; k, ring 0 (stages)
B: load -> mma; SMEM f8e4m3[n, k]; k, ring 0 (stages)
a_scale: load -> scale; SMEM f32[m]; k, ring 0 (stages)
b_scale: load -> scale; SMEM f32[n]; k, ring 0 (stages)
factor: scale -> compute; registers f32[m, n]; k
t_18: mma -> compute; registers f32[m, n]; k
acc_2: compute -> store; registers f32[m, n]; k -> tile
""",
    "residual": """
A: load -> mma; SMEM f16[m, k]; k, ring 0 (stages)
B: load -> mma; SMEM f16[n, k]; k, ring 0 (stages)
bias: load -> compute; SMEM f32[n]; tile, ring 1 (rest)
R: load -> compute; SMEM f16[m, n]; tile, ring 1 (rest)
acc_2: mma -> compute; registers f32[m, n]; k -> tile
t_8: compute -> store; registers f32[m, n]; tile
""",
    "attention": """
Q: load -> mma; SMEM bf16[m, D]; tile -> n, ring 2 (two)
K: load -> mma; SMEM bf16[n, D]; n, ring 0 (stages)
V: load -> mma; SMEM bf16[n, D]; n, ring 1 (stages)
t_2: mma -> compute; registers f32[m, n]; n
acc_2: mma -> compute; registers f32[m, D]; n
t_8: compute -> mma; registers f32[m, D]; n
t_9: compute -> mma; registers bf16[m, n]; n
t_12: compute -> store; registers f32[m, D]; tile
""",
}


@pytest.mark.parametrize("name", KERNELS)
def test_what_crosses(name: str) -> None:
    decode = "shared" if name == "decoded" else None
    table = edges(tile(KERNELS[name], Schedule(decode=decode)))
    assert [str(edge) for edge in table] == ROWS[name].strip().splitlines()


def test_sums_lie_in_tensor_memory_where_a_card_has_it() -> None:
    table = edges(tile(KERNELS["attention"], Schedule(arch="sm_100a")))
    assert [str(edge) for edge in table if edge.space == "TMEM"] == [
        "t_2: mma -> compute; TMEM f32[m, n]; n",
        "acc_2: mma -> compute; TMEM f32[m, D]; n",
        "t_8: compute -> mma; TMEM f32[m, D]; n",
    ]
    (made,) = (edge for edge in table if edge.name == "t_9")
    assert (made.producer, made.space, made.ring) == ("compute", "SMEM", 2)


def test_pieces_of_a_tile_load_what_their_epilogue_reads() -> None:
    kernel = tile(KERNELS["residual"], Schedule(scheduler="split_k"))
    assert {edge.name for edge in edges(kernel) if edge.producer == "load"} == {"A", "B"}
    roles = assign_partitions(kernel)
    loads = {op.tensor.name: roles[op] for op in kernel.of(Load)}
    assert loads == {"A": "load", "B": "load", "bias": "compute", "R": "compute"}


def test_each_op_has_one_partition() -> None:
    kernel = tile(KERNELS["decoded"], Schedule(decode="shared"))
    by = {(role, op_name(type(op))) for op, role in assign_partitions(kernel).items()}
    assert {name for role, name in by if role == "decode"} == {"cast", "load", "map"}
    assert {role for role, name in by if name in ("contract", "store")} == {"mma", "store"}
