"""Text that is no IR is refused with its line, a caret under the fault, and what would be right."""

import random
import re

import pytest

import wsdsl
from tests.case_table import matmul_text, parsed
from tests.simulator.kernels import rejected
from wsdsl.diagnostics import ParseError, WsdslError
from wsdsl.ir.parser import parse_kernel
from wsdsl.schedule import Schedule


def kernel(*lines: str, head: str = "kernel k @ scheduled (%s: state)") -> str:
    return "\n".join([head + " {", *(f"  {line}" for line in lines), "}"])


# The marked part (between « and ») is what the caret must stand under.
BAD = [
    (kernel("«frobnicate»(x=%s)"), "unknown op `frobnicate`"),
    (kernel("%t: state = advance(state=«%u», num=4)"), "%u is used before it is defined"),
    (kernel("%t: state = advance(state=«%t», num=4)"), "%t is used before it is defined"),
    (kernel("«%s»: state = advance(state=%s, num=4)"), "%s is defined twice"),
    (kernel("%t: state = advance(state=%s, «count»=4)"), "`advance` has no field `count`"),
    (kernel("%t: state = «advance»(state=%s)"), "`advance` lacks num"),
    (kernel("«advance»(state=%s, num=4)"), "`advance` defines one value, not 0"),
    (kernel("%t: state = «sync_cta»()"), "`sync_cta` defines no value"),
    (kernel("«elect»()"), "`elect` has 1 regions, not 0"),
    (kernel("«sync_cta»() {", "}"), "`sync_cta` has 0 regions, not 1"),
    (kernel("%x: «f99» = constant(value=1)"), "unknown element type `f99`"),
    (kernel("advance(state=«=»)"), "not IR"),
    (kernel("%t: state = advance(«state»=None, num=4)"), "`state` is NoneType; expected Value"),
    (kernel("sync_warp(«x»=1)"), "`sync_warp` has no field `x`"),
    (kernel(r'%b: mbarrier<1> = allocate_mbarriers(label=«"\q"», arrivals=1)'), "invalid string"),
    (kernel("%t: state = initial_state(parity=«" + "1" * 5000 + "»)"), "not IR"),
    (kernel("%t: mbarrier<«" + "1" * 5000 + "»> = allocate_mbarriers()"), "not IR"),
    (kernel("elect() {" * 99 + "elect«(») {" + "}" * 100), "depth of 101 exceeds 100"),
    (kernel(head="kernel «k» @ tile () sizes=((1,),)"), "`k` is tuple; expected tuple[tuple["),
    (kernel(head="kernel k @ «assembly» ()"), "unknown level `assembly`"),
    (kernel(head="kernel k @ tile () schedule=«Plan»(stages=4)"), "expected Schedule(...)"),
    (kernel(head="kernel k @ tile () schedule=«Schedule»(steps=4)"), "has no `steps`"),
    (kernel(head="kernel k @ tile () schedule=«Schedule»(stages=99)"), "Schedule.stages is 99"),
]


@pytest.mark.parametrize(("marked", "message"), BAD)
def test_refused_with_caret(marked, message):
    before, _, rest = marked.partition("«")
    word, _, _ = rest.partition("»")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    with pytest.raises(ParseError) as caught:
        parse_kernel(marked.replace("«", "").replace("»", ""), file="bad.ir")
    (finding,) = caught.value.findings
    assert message in finding.message
    assert (finding.loc.file, finding.loc.line, finding.loc.column) == ("bad.ir", line, column)
    source, caret = finding.render().splitlines()[1:3]
    assert caret.index("^") == source.index(word, source.index("|") + 1 + column)
    assert str(caught.value).startswith(f"bad.ir:{line}:{column}: ")


@pytest.mark.parametrize("text", ["", "kernel k @ tile () {", "kernel k @ tile (", "kernel"])
def test_text_that_ends_too_early(text):
    with pytest.raises(ParseError, match="ends within a block"):
        parse_kernel(text)


def test_comments_and_spacing_are_free():
    spaced = "# a\nkernel  k @ tile()# b\n{\nsync_cta( ) # c\n}"
    assert parse_kernel(spaced) == parse_kernel("kernel k @ tile () {\n  sync_cta()\n}\n")


TOKEN = re.compile(r'%[\w.]+|"(?:[^"\\]|\\.)*"|-?[\d.]+|\w+|\s+|.', re.DOTALL)
ODD = ("None", "-1", "0", "3", "9" * 25, "1.5", "True", '"x"', "()", "((1,),)", "i32", "state", "")
TEXT = matmul_text(
    "gemm(A: bf16[M, K], B: bf16[N, K], b: f32[N], C: bf16[M, N])",
    "A[m, k] @ B[n, k]",
    "C[m, n] = where(acc > 0.0, acc, b[n])",
)
CUT = dict(scheduler="split_k", splits=2, cluster=dict(n=2))


def mutated(text: str, rng: random.Random) -> str:
    """With a token exchanged for an odd one or for another of its kind, or a line moved."""
    lines = text.splitlines()
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))
        return "\n".join(lines)
    tokens = TOKEN.findall(text)
    value = [i for i, token in enumerate(tokens) if tokens[i - 1] in "=(" and token.strip(" (")]
    at = rng.choice(value)
    alike = [tokens[i] for i in value if tokens[i][0] == tokens[at][0]]
    tokens[at] = rng.choice((rng.choice(ODD), rng.choice(alike)))
    return "".join(tokens)


@pytest.mark.parametrize("level", ["tile", "partitioned", "scheduled"])
@pytest.mark.parametrize("way", [dict(stages=2), CUT], ids=["usual", "cut"])
def test_every_text_gives_a_kernel_or_an_error_with_a_place(level, way):
    schedule = Schedule(tile=dict(m=64, n=64, k=64), **way)
    text = parsed(TEXT).compile(schedule).ir(level)
    rng = random.Random(0)
    for _ in range(10):
        try:
            wsdsl.compile_ir(mutated(text, rng), "user.ir").prove()
        except WsdslError as error:
            loc = error.findings[0].loc
            assert loc and loc.file == "user.ir", error


def test_partials_go_to_all_of_the_cluster():
    rows = "@kernel\ndef f(X: f32[M, N], Y: f32[M]):\n    for m in tiles(M):\n        "
    kernel = wsdsl.parse(rows + "Y[m] = sum(X[m, :], over=N)").f
    text = kernel.compile(Schedule(cluster=dict(N=2)), N=4096).ir("scheduled")
    assert wsdsl.compile_ir(text).prove()
    with pytest.raises(wsdsl.VerifyError, match="ctas=3: the cluster has 2"):
        wsdsl.compile_ir(text.replace("ctas=2", "ctas=3", 1))


SLOTS = [
    ("producer_acquire(ring=%sum_ring)", "producer_acquire(ring=%ring)", "%ring is in SMEM"),
    ("consumer_wait(ring=%sum_ring)", "consumer_wait(ring=%sum_ring, layout=7)", "has 1 layouts"),
    ("consumer_release(slot=%slot_6)", "consumer_release(slot=%slot_5)", "acquired, not waited"),
    ("consumer_release(slot=%slot_6)", "consumer_release(slot=%acc_6)", "%acc_6 is not a"),
    ("load_to_slot(slot=%slot_1, field=1", "load_to_slot(slot=%slot_1, field=7", "has 2 fields"),
    ("sum_to_slot(slot=%slot_5, field=0, value=%acc_7)", "", "stage of the accumulator %acc_6"),
    ("%k_1: axis<k of K by 64>", "%k_1: f32", "expected an axis"),
]
AXES = [
    ("f32[m, n] = map", "f32[m, None] = map", "f32[m, None]: no op defines the axis None"),
    ("f32[m, n] = map", "f32[m] = map", "its operands have the axes m, n"),
    ("f32[n] = take_subtiles", "f32[m] = take_subtiles", "is f32[m]; the stage has f32[n]"),
    ("layouts=((f32[n],),)", "layouts=((f32[l],),)", "f32[l]: no op defines the axis l"),
    ("smem<bf16[n, k]>", "smem<bf16[n, k, n]>", "the stage has bf16[n, k]"),
]
TYPES = [
    ('%row: i32 = map(fn="add"', '%row: i32 = map(fn="gt"', "gt of i32 cannot give i32"),
    ("%t_2_1: frag<bool[64x64]>", "%t_2_1: frag<bool[64x32]>", "differs from the operands"),
    ("%c_out: frag<bf16[64x64]>", "%c_out: frag<bf16[2x64]>", "exceeds the registers"),
    ("%c_out: frag<bf16[64x64]>", "%c_out: frag<bf16[64x99999999]>", "exceeds the registers"),
    ("store_shared(value=%c_out,", "store_shared(value=%row,", "is i32; expected Fragment"),
]
HOPPER = Schedule(tile=dict(m=64, n=64, k=64), stages=2)
CHANGES = [
    *(("partitioned", Schedule(arch="sm_100a"), change) for change in SLOTS),
    *(("partitioned", HOPPER, change) for change in AXES),
    *(("scheduled", HOPPER, change) for change in TYPES),
]


@pytest.mark.parametrize(("level", "schedule", "change"), CHANGES)
def test_slots_axes_and_types_are_those_of_operands(level, schedule, change):
    text = parsed(TEXT).compile(schedule).ir(level)
    found = rejected(text, *change, count=1).findings
    line = text[: text.index(change[0])].count("\n") + 1
    assert change not in AXES or line in {finding.loc.line for finding in found}
