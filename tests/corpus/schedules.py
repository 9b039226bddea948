"""Schedules: those by which cases run elsewhere, each word by itself, and points of the whole space
drawn at random.
"""

from collections.abc import Iterator
from random import Random

from tests.corpus.entries import Entry, words
from tests.corpus.texts import TEXTS
from tests.kernels import CASES
from tests.prover.random_schedules import random_schedule
from tests.scaled_kernels import SCALED
from tests.schedules import ORDERS, WIDTHS
from wsdsl import Schedule

LARGE = dict(M=4096, N=4096, K=4096)
DEEP = dict(M=256, N=256, K=65536)
ORDERED = ("gemm", "mn_major", "epilogue", "product_f8e4m3", "scaled_rows")
"""By these all of ORDERS: plain, other layouts, epilogue operands, promoted sums, scales."""
WORDS: dict[str, Schedule] = {
    "persistent": Schedule(scheduler="persistent"),
    "grid": Schedule(scheduler="grid"),
    "split_k_serial": Schedule(scheduler="split_k", splits=4, reduction="serial"),
    "split_k_parallel": Schedule(scheduler="split_k", splits=4, reduction="parallel"),
    "split_k_pingpong": Schedule(scheduler="split_k", splits=2, mode="pingpong"),
    "stream_k": Schedule(scheduler="stream_k"),
    "pingpong": Schedule(mode="pingpong"),
    "cooperative": Schedule(mode="cooperative", consumers=2),
    "three_consumers": Schedule(tile=dict(m=192, n=128), consumers=3),
    "one_consumer": Schedule(tile=dict(m=64, n=256), consumers=1),
    "shared_columns": Schedule(tile=dict(m=64, n=256), consumers=2, consumer_split="n"),
    "pair": Schedule(cluster=dict(m=2)),
    "pair_without_multicast": Schedule(cluster=dict(m=2), multicast=False),
    "cluster_of_eight": Schedule(cluster=dict(m=2, n=4)),
    "cluster_along_k": Schedule(cluster=dict(k=2)),
    "one_slot": Schedule(stages=1),
    "shallow": Schedule(tile=dict(k=16), stages=2),
    "columns_ride_m": Schedule(mma_m="n"),
    "raster": Schedule(raster="m", swizzle=8),
    "registers": Schedule(
        tile=dict(m=128, n=128), consumers=2, registers=dict(load=40, compute=200)
    ),
    "constant": Schedule(pdl_independent=("B",)),
    "constant_scales": Schedule(pdl_independent=("a_scale", "b_scale")),
    "alone": Schedule(launch_pdl=False),
    "overlapped": Schedule(launch_pdl=True),
    "in_turn": Schedule(order_barriers=True),
    "not_in_turn": Schedule(order_barriers=False),
    "never_promoted": Schedule(mma_promotion_interval=0),
    "promoted_often": Schedule(mma_promotion_interval=64),
    "decode_shared": Schedule(operand_transform="smem"),
    "two_beside": Schedule(ctas_per_sm=2),
    "blackwell": Schedule(arch="sm_100a"),
    "blackwell_pair": Schedule(arch="sm_100a", cta_group=2),
    "claimed": Schedule(arch="sm_100a", scheduler="dynamic"),
    "claimed_pair": Schedule(arch="sm_100a", scheduler="dynamic", cta_group=2),
    "blackwell_two": Schedule(arch="sm_100a", tile=dict(m=256, n=64), consumers=2),
}
WORDED = ("gemm", "epilogue", "block_scaled", "scale")
CHAINED: dict[str, Schedule] = {
    "two": Schedule(order_barriers=True, consumers=2),
    "three": Schedule(tile=dict(m=192, n=64), order_barriers=True, consumers=3),
    "unordered": Schedule(order_barriers=False, consumers=2),
    "blackwell": Schedule(arch="sm_100a", tile=dict(m=128, n=128)),
    "blackwell_shared": Schedule(arch="sm_100a", tile=dict(m=128, n=64), operand_transform="smem"),
    "blackwell_two": Schedule(arch="sm_100a", tile=dict(m=256, n=64), consumers=2),
}
RANDOM = 100


def entries() -> Iterator[Entry]:
    for name in ORDERED:
        for i, schedule in enumerate(ORDERS):
            yield _entry(f"orders/{i}/{name}", name, schedule)
    for i, (name, schedule) in enumerate(WIDTHS):
        yield _entry(f"widths/{i}/{name}", name, schedule)
    for what, schedule in WORDS.items():
        chains = ("attention",) if schedule.order_barriers is not None else ()
        for name in (*WORDED, *chains):
            sizes = DEEP if schedule.cuts_tiles else LARGE
            yield _entry(f"words/{what}/{name}", name, schedule, **sizes)
    for what, schedule in CHAINED.items():
        yield _entry(f"chained/{what}", "attention", schedule, M=4096, N=4096, D=64)
    for name, case in SCALED.items():
        path = "cp" if "atoms" in name else "st"
        asked = Schedule(arch="sm_100a", tile=dict(n=128), sf_load=path)
        yield Entry(f"scaled/{name}", case.text, case.sizes, words(asked))
    for bins in (1, 64, 1000):
        held = Schedule(smem_privatize=dict(H=(bins,)))
        yield Entry(f"counters/{bins}", TEXTS["histogram"][0], dict(N=1 << 20, B=1000), words(held))
    rng = Random(0)
    for i in range(RANDOM):
        name, schedule, threads = rng.choice([*CASES]), random_schedule(rng), rng.random() < 0.3
        entry = _entry(f"random/{i}/{name}", name, schedule, M=rng.choice((64, 512, 4096)))
        yield Entry(
            entry.name, entry.text, entry.sizes, entry.schedule, "all" if threads else "none"
        )


def _entry(title: str, name: str, schedule: Schedule, **sizes: int) -> Entry:
    case = CASES[name]
    held = {dim: sizes.get(dim, size) for dim, size in case.sizes.items()}
    return Entry(title, case.text, held, words(schedule))
