"""The synchronizing events of PTX text, along every path of its control flow."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from wsdsl.prover.ptx.expected_paths import HALVES, TMEM, Places, parity_of, place_at
from wsdsl.prover.ptx.register_slice import Statics, split_address
from wsdsl.prover.ptx.register_values import ADDRESS, BASE, Values
from wsdsl.prover.ptx.sync_events import (
    CONDITIONAL,
    EVERYWHERE,
    FIRST_CTA,
    IS_CANCELED,
    TRY_CANCEL,
    UNKNOWN,
    Letter,
)
from wsdsl.prover.ptx.tcgen05_letters import PREFIX, tensor_letter

COMMENT = re.compile(r"//[^\n]*")
TOKEN = re.compile(
    r"(?<![^\s;{}:])(?:"
    r"(?P<label>[$a-zA-Z_][$\w]*):(?!:)"
    r"|(?:@(?P<guard>!?[%\w]+)[ \t]+)?"
    r"(?P<op>(?:mbarrier|clusterlaunchcontrol|cp\.async(?!\.bulk\.prefetch)|cp\.reduce|wgmma|tcgen05|fence|membar|bar|barrier|setmaxnreg|elect|red\.release"
    r"|red\.relaxed|red\.acq_rel|red\.async|atom|ld\.acquire|st\.release|st\.async|griddepcontrol|bra|brx|ret|exit|trap)(?:\.[\w.:]+)?"
    r"|(?:ld|st|red)\.(?:shared|global)(?!\.nc)(?:\.[\w.:]+)?|(?:ld|st)matrix\.[\w.:]+"
    # Instructions that some lanes of a warp execute together.
    r"|(?:shfl|vote|match|redux)\.sync[\w.]*(?![^;]*,[ \t]*-1;))"
    r"(?=[\s;])(?P<args>[^;]*);"
    r"|(?P<table>\.branchtargets)(?P<targets>[^;]*);)"
)
OPERAND = re.compile(r"\[[^\]]*(?:\{[^}]*\})?[^\]]*\]|\{[^}]*\}|[^\s,\[\]{}]+")
# Qualifiers of every event, or that limit its scope: both sides are the widest.
NEUTRAL = re.compile(
    r"\.(?:b64|[bus]32|sync|aligned|shared::cta|shared::cluster|cta|cluster|release|acquire)(?=\.|$)"
)
FLAG = re.compile(r"red(\.relaxed)?\.gpu\.global\.(add|inc)$")
ACCESS = re.compile(r"(?:(ld)|st|red)(?:matrix|\.shared\b(?!::)|\.(global))")
BARRIER = re.compile(r"bar(?:rier)?(?:\.cta)?\.(sync|arrive)(?:\.aligned)?$")
TENSOR = re.compile(r"cp(?:\.reduce)?\.async\.bulk\.tensor\.(\dd)\.(?:tile\.)?(.*)")
DESCRIPTORS = ("a", "b")
PRODUCT = "wgmma.mma_async.sync.aligned."
SEND = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
SENT = {f"{SEND}.v4.b32": "16 bytes", f"{SEND}.b32": "4 bytes"}
ASK_PTX = f"{TRY_CANCEL}.async.shared::cta.mbarrier::complete_tx::bytes"
ASKS = {
    f"{ASK_PTX}.b128": TRY_CANCEL,
    f"{ASK_PTX}.multicast::cluster::all.b128": f"multicast {TRY_CANCEL}",
}
"""Instructions and their events."""
READS = {f"{IS_CANCELED}.pred.b128": IS_CANCELED, f"{FIRST_CTA}.b32.b128": FIRST_CTA}
LOAD = "shared::cluster.global.mbarrier::complete_tx::bytes"
STORE = "global.shared::cta.bulk_group"
REDUCE = "global.shared::cta.add.bulk_group"


@dataclass(frozen=True)
class Token:
    """A label or an instruction."""

    at: int
    label: str
    guard: str
    op: str
    args: str
    way: int = -1
    """Of a branch by a known number: those that have this one. Of a product: the operand."""

    @property
    def target(self) -> str:
        return self.args.strip() if self.op.startswith("bra") else ""


class Ask(NamedTuple):
    """The operand that says a field of a letter, and where it is read."""

    field: str
    text: str
    at: int


Asked = tuple[Letter, *tuple[Ask, ...]]
"""A letter, and what it lacks."""


@dataclass(frozen=True)
class Event:
    """A letter, but for what depends on registers."""

    letter: Letter
    line: int
    may: int
    must: int
    asked: tuple[Ask, ...] = ()


@dataclass(frozen=True)
class Jump:
    """`targets`: labels, or nothing where the thread ends."""

    targets: tuple[str, ...]
    may: int
    must: int


def without_comments(ptx: str) -> str:
    return COMMENT.sub(lambda m: " " * len(m[0]), ptx)


def tokens_of(text: str, form: re.Pattern[str], tables: dict[str, list[str]]) -> Iterator[Token]:
    """Yield the tokens of a form; add the targets of branches to `tables`, by the table's label."""
    label = ""
    for m in form.finditer(text):
        if m["table"]:
            tables[label] = m["targets"].replace(",", " ").split()
            continue
        label = m["label"] or ""
        yield Token(m.start(), label, m["guard"] or "", m["op"] or "", m["args"] or "")


class Program:
    """Labels, jumps and events of PTX text. Raises nothing: an unknown instruction becomes an event
    that no kernel has.
    """

    def __init__(self, text: str, places: Places) -> None:
        self.text = without_comments(text)
        self.places = places
        self.names = places.names()
        self.ends_of_lines = [m.start() for m in re.finditer("\n", text)]
        self.tables: dict[str, list[str]] = {}
        tokens = list(tokens_of(self.text, TOKEN, self.tables))
        spins = set(_spins(tokens))
        waits = {i for i in spins if not tokens[i].label and not tokens[i].target}
        starts = [t.at for i, t in enumerate(tokens) if t.label and i not in spins]
        self.values = Values(self.text, starts, _entries(tokens, spins, self.tables))
        self.threads = Statics(self.values, places.num_threads)
        # Loads of the address that `tcgen05.alloc` stored are moves of a number.
        made = (d for several in self.values.defined.values() for d in several)
        for d in (d for d in made if d.op == "ld.shared.b32"):
            base, plus = split_address(d.operands)
            if self.threads.operand(base, d.at) in [BASE + word - plus for word in places.words]:
                d.op, d.operands = "mov.b32", str(BASE + TMEM)
        kept = (t for i, t in enumerate(tokens) if i not in spins or i in waits)
        self.tokens = [way for token in kept for way in self._ways(token)]
        waiting = {tokens[i].at for i in waits}
        self.read = [self._read(token, token.at in waiting) for token in self.tokens]

    def _targets(self, token: Token) -> list[str]:
        return self.tables.get(token.args.rpartition(",")[2].strip(), [])

    def _ways(self, token: Token) -> list[Token]:
        """A branch by a known number as several, and so a product: one for each operand."""
        if token.op.startswith((f"{PREFIX}mma", f"{PREFIX}cp", PRODUCT)):
            args = OPERAND.findall(token.args)
            also = [i for i, x in enumerate(args) if i and (x[0] == "[" or x in DESCRIPTORS)]
            return [token, *(replace(token, way=i) for i in also)]
        if token.op.partition(".")[0] != "brx" or token.guard:
            return [token]
        index = self.threads.operand(token.args.partition(",")[0].strip(), token.at)
        ways = range(len(self._targets(token)))
        if not isinstance(index, list) or not {*index} <= {*ways}:
            return [token]
        return [replace(token, way=way) for way in ways]

    def _read(self, token: Token, spins: bool) -> Event | Jump | None:
        """None for a label."""
        if token.label:
            return None
        may, must = self.threads.threads(token.guard, token.at)
        kind = token.op.partition(".")[0]
        if kind == "brx" and token.way >= 0:
            own = self.threads.having(token.args.partition(",")[0].strip(), token.way, token.at)
            return Jump((self._targets(token)[token.way],), own, own)
        if kind == "brx":
            return Jump(tuple(self._targets(token)), may, must)
        if kind in ("bra", "ret", "exit", "trap"):
            return Jump((token.target,) if kind == "bra" else (), may, must)
        line = bisect_right(self.ends_of_lines, token.at) + 1
        if found := ACCESS.match(token.op):
            kind = f"{'ld' if found[1] else 'st'}.{'global' if found[2] else 'shared'}"
            return Event(Letter(kind), line, -(may != 0), -(may != 0))
        letter, *asked = self._letter(token, spins)
        if may != must:
            letter = letter._replace(kind=CONDITIONAL + letter.kind)
        return Event(letter, line, may, must, tuple(asked))

    def filled(self, field: str, value: int | None) -> str:
        """A field of a letter that an operand says."""
        if value is None:
            return UNKNOWN
        if field == "detail":
            return parity_of(value)
        if field in ("cta", "number"):
            return str(value)
        place = value - BASE
        return self.names.get(place, place_at(place)) if field == "barrier" else place_at(place)

    # Letters -------------------------------------------------------------------------------------

    def _letter(self, token: Token, spins: bool) -> Asked:
        op, args = token.op, OPERAND.findall(token.args)
        first, last = (args[0], args[-1]) if args else ("", "")
        if found := BARRIER.match(op):
            if first[:1] == "%":
                number = Ask("number", first, token.at)
                return Letter(f"bar.{found[1]}", ", ".join(args[1:])), number
            return (Letter(f"bar.{found[1]}", ", ".join(args)),)
        if op.startswith("griddepcontrol."):
            return (Letter("griddepcontrol", op.partition(".")[2]),)
        if op.startswith("barrier.cluster."):
            return (Letter(re.sub(r"\.(aligned|acquire|release)\b", "", op)),)
        if found := TENSOR.match(op):
            return self._copy(token, found[1], found[2], args)
        if token.way > 0 and args[token.way] in DESCRIPTORS:
            return self._descriptor(args[token.way], token.at)
        if op.startswith(PRODUCT):
            return (Letter("wgmma.mma_async", f"{op.removeprefix(PRODUCT)} {_product(args)}"),)
        if op in ASKS and len(args) == 2:
            return Letter(ASKS[op]), Ask("barrier", last, token.at), Ask("to", first, token.at)
        if op in READS:
            return (Letter(READS[op]),)
        kind = NEUTRAL.sub("", op)
        if kind.startswith(PREFIX):
            known = partial(self.values.constant_at, at=token.at)
            letter, field, text = tensor_letter(kind, args, token.way, known)
            mask = [Ask("cta", last, token.at)] * (".multicast::cluster" in kind)
            return (letter, Ask(field, text, token.at), *mask) if field else (letter,)
        if op in SENT and len(args) == 3:
            (to, *into), (on, *counted) = (self._remote(args[i], token.at) for i in (0, 2))
            if [self._made(*ask[1:]) for ask in into] != [self._made(*ask[1:]) for ask in counted]:
                return (Letter("st.async counted elsewhere"),)
            return Letter("st.async", SENT[op]), Ask("to", *to), Ask("barrier", *on), *into
        if kind.startswith("mbarrier."):
            return self._mbarrier(token, kind, args, spins)
        if (found := FLAG.match(kind)) and (found[1] or ".release" in op):
            amount = "a register" if last[:1] == "%" else last
            return (Letter(f"red{found[1] or '.release'}.gpu.{found[2]}", amount),)
        if kind.startswith("ld.gpu") and ".acquire" in op:
            return (Letter("ld.acquire.gpu" if spins else "ld.acquire.gpu outside of a loop"),)
        if op == "fence.proxy.async":
            return (Letter(op, EVERYWHERE),)
        if kind in ("bar.warp", "elect") and last in ("-1", "0xffffffff", "4294967295"):
            return (Letter(f"{kind}.sync"),)
        return (Letter(kind, ", ".join(args)),)

    def _mbarrier(self, token: Token, kind: str, args: list[str], spins: bool) -> Asked:
        address = next((arg for arg in args if arg[0] == "["), "")
        barrier = Ask("barrier", address, token.at)
        if kind == "mbarrier.init":
            return Letter(kind, args[-1]), barrier
        if kind == "mbarrier.try_wait.parity":
            kind = "mbarrier.try_wait" if spins else "mbarrier.try_wait outside of a loop"
            return Letter(kind), barrier, Ask("detail", args[-1], token.at)
        rest = [self._number(arg, token.at) for arg in args[1:] if arg[0] != "["]
        if "shared::cluster" in token.op:
            on, *cta = self._remote(address, token.at)
            return Letter(f"remote {kind}", ", ".join(rest)), Ask("barrier", *on), *cta
        return Letter(kind, ", ".join(rest)), barrier

    def _number(self, text: str, at: int) -> str:
        """The value of an operand in all threads, if it is known; else itself."""
        known = self.threads.operand(text, at) if text[0] == "%" else None
        return str(known) if isinstance(known, int) else text

    def _remote(self, address: str, at: int) -> tuple[tuple[str, int], *tuple[Ask, ...]]:
        """The address in some CTA, and the CTA if a `mapa` gives it."""
        found = ADDRESS.search(address)
        made = self.values.definitions(found[1], at) if found else []
        if not found or len(made) != 1 or not made[0].op.startswith("mapa.") or made[0].guard:
            return ((address, at),)
        d = made[0]
        if any(self._made(text, at) != self._made(text, d.at) for text in d.args[:2]):
            return ((address, at),)
        return (f"[{d.args[0]}+{found[2] or 0}]", d.at), Ask("cta", d.args[1], d.at)

    def _descriptor(self, text: str, at: int) -> Asked:
        """The low half of the addition is an address, and the high half a number."""
        for whole in self.values.definitions(text, at):
            low, high = [*whole.args, "", ""][:2]
            for d in self.values.definitions(low, whole.at):
                base, plus = d.args[0], self.values.constant(d.args[-1])
                half = f"[{base}+{HALVES + BASE + (plus or 0)}]"
                letter = Letter("operand", str(self.values.constant_at(high, whole.at)))
                return letter, Ask("barrier", half, d.at), Ask("to", half, d.at)
        return (Letter("operand", UNKNOWN),)

    def _made(self, text: str, at: int) -> list[int]:
        return [d.at for d in self.values.definitions(text, at)]

    def _copy(self, token: Token, rank: str, form: str, args: list[str]) -> Asked:
        reduces = token.op.startswith("cp.reduce.")
        if form == (REDUCE if reduces else STORE) and len(args) == 2:
            return Letter("TMA reduction" if reduces else "TMA store", rank), Ask(
                "to", args[1], token.at
            )
        many, paired = form == f"{LOAD}.multicast::cluster", form == f"{LOAD}.cta_group::2"
        if not (form == LOAD or many or paired) or len(args) != 3 + many:
            return (Letter(token.op, token.args),)
        if paired:
            on, *cta = self._remote(args[2], token.at)
            where = Ask("barrier", *on), *cta, Ask("to", args[0], token.at)
            return Letter("pair's TMA load", rank), *where
        kind = "multicast TMA load" if many else "TMA load"
        where = Ask("barrier", args[2], token.at), Ask("to", args[0], token.at)
        return Letter(kind, rank), *where, *[Ask("cta", mask, token.at) for mask in args[3:]]


def _entries(
    tokens: Sequence[Token], spins: Collection[int], tables: Mapping[str, Sequence[str]]
) -> dict[int, list[int]]:
    """By a label's place those from which threads come to it."""
    places = {t.label: t.at for i, t in enumerate(tokens) if t.label and i not in spins}
    entries: dict[str, list[int]] = {label: [] for label in places}
    for i, token in enumerate(tokens):
        for label in (token.target, *tables.get(token.args.rpartition(",")[2].strip(), ())):
            entries.get(label, []).append(token.at)
        if token.label in entries:
            before = tokens[i - 1] if i else token
            leaves = before.op.partition(".")[0] in ("bra", "brx", "ret", "exit", "trap")
            if not leaves or before.guard:
                entries[token.label].append(token.at - 1)
    return {places[label]: found for label, found in entries.items()}


def _product(args: Sequence[str]) -> str:
    """The operands after the accumulators, as far as they are the same in all kernels."""
    if len(args) < 4:
        return ", ".join(args)
    _, a, _, flag, *rest = args
    shown = "{a}" if a[0] == "{" else "a"
    return ", ".join([shown, "b", flag if flag in ("0", "1") else "p", *rest])


def _spins(tokens: Sequence[Token]) -> Iterator[int]:
    """Indices of the tokens of loops that do nothing but wait, for what they test."""
    for i, (label, event, branch) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        if not label.label or branch.target != label.label or not branch.guard:
            continue
        done = OPERAND.findall(event.args)[:1]
        if event.op.startswith("mbarrier.try_wait") and not event.guard:
            if [branch.guard] == [f"!{flag}" for flag in done]:
                yield from (i, i + 1, i + 2)
        elif event.op.startswith("ld.acquire") and not event.guard and branch.guard[0] != "!":
            yield from (i, i + 1, i + 2)
