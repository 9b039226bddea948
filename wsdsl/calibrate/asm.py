"""Generate PTX of a microbenchmark: a kernel of one CTA per SM that records its duration.

No kernel can hang. Waits for an mbarrier or a flag end after `PATIENCE` polls in all. Each CTA
writes its number of polls; `Gpu` rejects launches that abandon a wait.
"""

import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

PATIENCE = 1 << 22
"""Looks of a thread at what it waits for, all its waits together."""
SAMPLE_BYTES = 32
"""Of what a CTA writes: cycles, nanoseconds, looks, and nothing."""
SAME_SM = 227 << 10
"""Dynamic SMEM with which no two CTAs are on one SM."""
PTX_TYPES = {"u64": ".u64", "u32": ".u32", "map": ".align 64 .b8"}
PROLOGUE = """\
.reg .b32 tid, warp, lane, cta, rank, base, bar, looks, sink, i, j, k, x, y;
.reg .b64 clock0, clock1, timer0, timer1, address, mine;
.reg .pred done, more, chosen;
mov.u32 tid, %tid.x;
mov.u32 cta, %ctaid.x;
mov.u32 rank, %cluster_ctarank;
and.b32 lane, tid, 31;
shr.u32 warp, tid, 5;
shfl.sync.idx.b32 warp, warp, 0, 31, -1;
mov.u32 base, smem;
mov.u32 looks, 0;
mov.u32 sink, 0;"""


class Asm:
    """Lines of a kernel's body. Registers of `PROLOGUE` are there."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._labels = 0

    def __call__(self, text: str) -> None:
        self.lines += textwrap.dedent(text).strip().splitlines()

    def label(self) -> str:
        self._labels += 1
        return f"L{self._labels}"

    @contextmanager
    def loop(self, counter: str, until: str | int) -> Generator[None]:
        start, end = self.label(), self.label()
        self(f"mov.u32 {counter}, 0;\nsetp.ge.u32 more, {counter}, {until};\n@more bra {end};")
        self(f"{start}:")
        yield
        self(f"add.u32 {counter}, {counter}, 1;\nsetp.lt.u32 more, {counter}, {until};")
        self(f"@more bra {start};\n{end}:")

    @contextmanager
    def where(self, condition: str) -> Generator[None]:
        """For threads that have it: `"eq.u32 tid, 0"`."""
        end = self.label()
        self(f"setp.{condition.replace(' ', ' chosen, ', 1)};\n@!chosen bra {end};")
        yield
        self(f"{end}:")

    def until(self, look: str) -> None:
        """Repeats `look`, which sets `done`, until it does or the patience is at an end."""
        start, end = self.label(), self.label()
        self(f"{start}:")
        self(look)
        self(f"@done bra {end};\nadd.u32 looks, looks, 1;")
        self(f"setp.lt.u32 done, looks, {PATIENCE};\n@done bra {start};\n{end}:")

    def wait(self, barrier: str, parity: str) -> None:
        self.until(f"mbarrier.try_wait.parity.shared::cta.b64 done, [{barrier}], {parity};")

    def init(self, first: str, barriers: int, count: int = 1) -> None:
        """mbarriers one after the other, by one thread."""
        for n in range(barriers):
            self(f"mbarrier.init.shared::cta.b64 [{first}+{8 * n}], {count};")
        self("fence.mbarrier_init.release.cluster;")

    @contextmanager
    def timed(self) -> Generator[None]:
        """Measure from one barrier of all threads of the CTA to another."""
        self("bar.sync 0;\nmov.u64 timer0, %globaltimer;\nmov.u64 clock0, %clock64;")
        yield
        self("bar.sync 0;\nmov.u64 clock1, %clock64;\nmov.u64 timer1, %globaltimer;")

    def keep(self, registers: str, count: int, type: str = "b32") -> None:
        """`registers` 0 to `count` are results, which must be computed."""
        for n in range(count):
            if type == "f32":
                self(f"mov.b32 x, {registers}{n};\nxor.b32 sink, sink, x;")
            else:
                self(f"xor.b32 sink, sink, {registers}{n};")


@dataclass(frozen=True)
class Kernel:
    """`params`: kind and name of each, behind `out`, where the CTAs write their samples, and
    `count`, of what is measured. `waits`: the thread whose `looks` are told.
    """

    name: str
    body: str
    threads: int
    params: tuple[tuple[str, str], ...] = ()
    smem_bytes: int = SAME_SM
    cluster: int = 1

    @property
    def all_params(self) -> tuple[tuple[str, str], ...]:
        return (("u64", "out"), ("u32", "count"), *self.params)

    @property
    def ptx(self) -> str:
        declared = [
            f".param {PTX_TYPES[kind]} p_{name}{'[128]' if kind == 'map' else ''}"
            for kind, name in self.all_params
        ]
        lines: list[str] = [PROLOGUE]
        for kind, name in self.all_params:
            lines.append(f".reg .{'b32' if kind == 'u32' else 'b64'} {name};")
            if kind == "map":
                lines.append(f"mov.b64 {name}, p_{name};\ncvta.param.u64 {name}, {name};")
            else:
                lines.append(f"ld.param.{kind} {name}, [p_{name}];")
        lines += [self.body, EPILOGUE]
        clustered = f".explicitcluster\n.reqnctapercluster {self.cluster}, 1, 1\n"
        return (
            ".version 8.3\n.target sm_90a\n.address_size 64\n"
            ".extern .shared .align 1024 .b8 smem[];\n"
            f".visible .entry {self.name}({', '.join(declared)})\n"
            f".reqntid {self.threads}, 1, 1\n.minnctapersm 1\n"
            f"{clustered if self.cluster > 1 else ''}{{\n" + "\n".join(lines) + "\n}\n"
        )


EPILOGUE = """\
setp.eq.u32 done, sink, 0x9e3779b9;
@done st.global.u32 [out+24], sink;
setp.ne.u32 done, tid, 0;
@done bra END;
mul.wide.u32 mine, cta, 32;
add.u64 mine, out, mine;
sub.u64 clock1, clock1, clock0;
sub.u64 timer1, timer1, timer0;
cvt.u64.u32 clock0, looks;
st.global.u64 [mine], clock1;
st.global.u64 [mine+8], timer1;
st.global.u64 [mine+16], clock0;
END:
ret;"""


def kernel(
    name: str, asm: Asm, threads: int, *params: str, smem_bytes: int = SAME_SM, cluster: int = 1
) -> Kernel:
    """`params` as in `"u64 source"`."""
    split = tuple((kind, of) for kind, of in (p.split() for p in params))
    return Kernel(name, "\n".join(asm.lines), threads, split, smem_bytes, cluster)
