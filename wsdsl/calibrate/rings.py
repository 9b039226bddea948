"""Generate kernels whose single thread copies blocks of 16 KB between GMEM and a SMEM pipeline."""

from wsdsl.calibrate.asm import Asm, Kernel, kernel

BLOCK = 16384
BLOCK_ROWS = 128
"""Of 128 bytes each."""
SLOTS = 12
AHEAD = 8
"""Blocks that are loaded while others are stored, in a copy."""
BOX = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.global.shared::cta.bulk_group"


def begin(asm: Asm, slots: int) -> None:
    """Initialize the full barriers of all stages; they lie after the stages in SMEM."""
    asm(".reg .b32 stage, phase, before, to, at;")
    asm(f"add.u32 bar, base, {slots * BLOCK};\nmov.u32 stage, 0;\nmov.u32 phase, 0;")
    with asm.where("eq.u32 tid, 0"):
        asm.init("bar", slots)
    asm("bar.sync 0;")


def take(asm: Asm) -> None:
    """Wait for what the stage held before; `at` is its barrier, `to` the stage."""
    asm("xor.b32 before, phase, 1;\nmad.lo.u32 at, stage, 8, bar;")
    asm(f"mad.lo.u32 to, stage, {BLOCK}, base;")
    asm.wait("at", "before")


def step(asm: Asm, slots: int, stage: str = "stage", phase: str = "phase") -> None:
    asm(f"""
        add.u32 {stage}, {stage}, 1;
        setp.eq.u32 done, {stage}, {slots};
        selp.u32 {stage}, 0, {stage}, done;
        selp.u32 y, 1, 0, done;
        xor.b32 {phase}, {phase}, y;""")


def expect(asm: Asm, bytes: int = BLOCK) -> None:
    asm(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [at], {bytes};")


def loads(name: str, *, boxes: bool, slots: int = SLOTS) -> Kernel:
    """Load blocks into the pipeline at full rate; no thread reads them.

    With `boxes`, a CTA alternates between two panels of rows, as of a matmul's operands: those of
    CTA n begin at rows 256 n and 256 n + 128; along a row it restarts at the end of `wrap`.
    Else blocks of the CTAs are adjacent, and those of one CTA are `stride` bytes apart.
    """
    asm = Asm()
    begin(asm, slots)
    asm(f"mul.lo.u32 k, cta, {2 * BLOCK_ROWS};")
    if not boxes:
        asm(f"mad.wide.u32 address, cta, {BLOCK}, source;")
    with asm.timed(), asm.where("eq.u32 tid, 0"):
        with asm.loop("i", "count"):
            take(asm)
            expect(asm)
            if boxes:
                asm("shr.u32 x, i, 1;\nshl.b32 x, x, 6;\nand.b32 x, x, wrap;")
                asm(f"and.b32 y, i, 1;\nmad.lo.u32 y, y, {BLOCK_ROWS}, k;")
                asm(f"{BOX} [to], [rows, {{x, y}}], [at];")
            else:
                asm(f"{BULK} [to], [address], {BLOCK}, [at];\nadd.u64 address, address, stride;")
            step(asm, slots)
        with asm.loop("i", slots):
            take(asm)
            step(asm, slots)
    params = ("map rows", "u32 wrap") if boxes else ("u64 source", "u64 stride")
    return kernel(name, asm, 32, *params)


def stores(name: str) -> Kernel:
    """Blocks of SMEM to GMEM, those of a CTA `stride` bytes apart, anew where `wrap` ends."""
    asm = Asm()
    asm(f".reg .b64 offset;\nmov.u64 offset, 0;\nmul.wide.u32 mine, cta, {BLOCK};")
    asm("mad.lo.u64 mine, mine, apart, target;\nfence.proxy.async.shared::cta;")
    with asm.timed(), asm.where("eq.u32 tid, 0"):
        with asm.loop("i", "count"):
            asm(f"""
                add.u64 address, mine, offset;
                {STORE} [address], [base], {BLOCK};
                cp.async.bulk.commit_group;
                cp.async.bulk.wait_group.read 4;
                add.u64 offset, offset, stride;
                and.b64 offset, offset, wrap;""")
        asm("cp.async.bulk.wait_group 0;")
    return kernel(name, asm, 32, "u64 target", "u64 apart", "u64 stride", "u64 wrap")


def copies(name: str) -> Kernel:
    """Blocks from `source` to `target`, those of a CTA `stride` bytes apart."""
    asm = Asm()
    asm(".reg .b64 into;\n.reg .b32 full, state, from;\nmov.u32 full, 0;\nmov.u32 state, 0;")
    begin(asm, SLOTS)
    asm(f"mad.wide.u32 address, cta, {BLOCK}, source;\nmad.wide.u32 into, cta, {BLOCK}, target;")
    with asm.timed(), asm.where("eq.u32 tid, 0"):
        for _ in range(AHEAD):
            _copied_load(asm)
        with asm.loop("i", "count"):
            # All stores but the last few have read their stages.
            asm(f"cp.async.bulk.wait_group.read {SLOTS - AHEAD - 1};\nadd.u32 j, i, {AHEAD};")
            with asm.where("lt.u32 j, count"):
                _copied_load(asm)
            asm("mad.lo.u32 at, full, 8, bar;")
            asm.wait("at", "state")
            asm(f"mad.lo.u32 from, full, {BLOCK}, base;\n{STORE} [into], [from], {BLOCK};")
            asm("cp.async.bulk.commit_group;\nadd.u64 into, into, stride;")
            step(asm, SLOTS, "full", "state")
        asm("cp.async.bulk.wait_group 0;")
    return kernel(name, asm, 32, "u64 source", "u64 target", "u64 stride")


def _copied_load(asm: Asm) -> None:
    asm(f"mad.lo.u32 at, stage, 8, bar;\nmad.lo.u32 to, stage, {BLOCK}, base;")
    expect(asm)
    asm(f"{BULK} [to], [address], {BLOCK}, [at];\nadd.u64 address, address, stride;")
    step(asm, SLOTS)
