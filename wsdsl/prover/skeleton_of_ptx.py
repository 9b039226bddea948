"""The synchronising events of PTX text, along every path of its control flow."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wsdsl.prover.skeleton_exact import Exact
from wsdsl.prover.skeleton_guards import Guards
from wsdsl.prover.skeleton_language import EVERYBODY, EVERYWHERE, UNKNOWN, Graph, Letter
from wsdsl.prover.skeleton_of_kernel import CONDITIONAL, Items, Places, ctas, sent
from wsdsl.prover.skeleton_values import Values

COMMENT = re.compile(r"//[^\n]*")
TOKEN = re.compile(
    r"(?<![^\s;{}:])(?:"
    r"(?P<label>[$a-zA-Z_][$\w]*):(?!:)"
    r"|(?:@(?P<guard>!?[%\w]+)[ \t]+)?"
    r"(?P<op>(?:mbarrier|cp\.async|cp\.reduce|wgmma|fence|membar|bar|barrier|setmaxnreg|elect|red\.release"
    r"|red\.relaxed|red\.acq_rel|red\.async|atom|ld\.acquire|st\.release|st\.async|griddepcontrol|bra|brx|ret|exit|trap)(?:\.[\w.:]+)?)"
    r"(?=[\s;])(?P<args>[^;]*);"
    r"|(?P<table>\.branchtargets)(?P<targets>[^;]*);)"
)
OPERAND = re.compile(r"\[[^\]]*(?:\{[^}]*\})?[^\]]*\]|\{[^}]*\}|[^\s,\[\]{}]+")
# What every event has, or what says with whom alone it synchronises: both sides are the widest.
NEUTRAL = re.compile(
    r"\.(?:b64|[bus]32|sync|aligned|shared::cta|shared::cluster|cta|cluster|release|acquire)(?=\.|$)"
)
FLAG = re.compile(r"red(\.relaxed)?\.gpu\.global\.(add|inc)$")
BARRIER = re.compile(r"bar(?:rier)?(?:\.cta)?\.(sync|arrive)(?:\.aligned)?$")
TENSOR = re.compile(r"cp(?:\.reduce)?\.async\.bulk\.tensor\.(\dd)\.(?:tile\.)?(.*)")
PRODUCT = "wgmma.mma_async.sync.aligned."
SEND = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
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

    @property
    def target(self) -> str:
        return self.args.strip() if self.op.startswith("bra") else ""


def skeleton_of_ptx(text: str, places: Places) -> Graph:
    """Raises nothing: what is not understood becomes an event that no kernel has."""
    return _Reader(text, places).graph


class _Reader:
    def __init__(self, text: str, places: Places) -> None:
        self.text = COMMENT.sub(lambda m: " " * len(m[0]), text)
        self.places, self.graph = places, Graph()
        self.ends_of_lines = [m.start() for m in re.finditer("\n", text)]
        self.tables: dict[str, list[str]] = {}
        tokens = list(self._tokens())
        spins = set(_spins(tokens))
        waits = {i for i in spins if not tokens[i].label and not tokens[i].target}
        starts = [t.at for i, t in enumerate(tokens) if t.label and i not in spins]
        self.values = Values(self.text, starts, _only_entries(tokens, spins, self.tables))
        self.guards = Guards(self.values, places.num_threads)
        self.labels: dict[str, int] = {}
        now: int | None = 0
        for i, token in enumerate(tokens):
            if i not in spins or i in waits:
                now = self._follow(now, token, i in waits)

    def _tokens(self) -> Iterator[Token]:
        label = ""
        for m in TOKEN.finditer(self.text):
            if m["table"]:
                self.tables[label] = m["targets"].replace(",", " ").split()
                continue
            label = m["label"] or ""
            yield Token(m.start(), label, m["guard"] or "", m["op"] or "", m["args"] or "")

    def _label(self, name: str) -> int:
        if name not in self.labels:
            self.labels[name] = self.graph.add()
        return self.labels[name]

    def _follow(self, now: int | None, token: Token, spins: bool) -> int | None:
        """The node after a token; None where the text goes on, but no thread."""
        if token.label:
            node = self._label(token.label)
            if now is not None:
                self.graph.join(now, node)
            return node
        if now is None:
            return None
        kind = token.op.partition(".")[0]
        if kind in ("bra", "brx", "ret", "exit", "trap"):
            targets = [token.target]
            if kind == "brx":
                targets = self.tables.get(token.args.rpartition(",")[2].strip(), [])
            elif kind != "bra":
                # A branch to a place of its own, so that a guard is treated like any other.
                targets = [f"the end by {kind}"]
                self.graph.ends.add(self._label(targets[0]))
            may, must = self.guards.threads(token.guard)
            taken = self._silent(now, may) if token.guard else now
            for target in targets:
                self.graph.join(taken, self._label(target))
            return self._silent(now, ~must) if token.guard else None
        letter = self._letter(token, spins)
        may, must = self.guards.threads(token.guard)
        if may != must:
            letter = letter._replace(kind=CONDITIONAL + letter.kind)
        line = bisect_right(self.ends_of_lines, token.at) + 1
        node = self.graph.add(letter, line, may)
        self.graph.join(now, node)
        if not token.guard:
            return node
        after = self._silent(node, EVERYBODY)
        self.graph.join(self._silent(now, ~may), after)
        return after

    def _silent(self, before: int, threads: int) -> int:
        node = self.graph.add(threads=threads)
        self.graph.join(before, node)
        return node

    # Letters -------------------------------------------------------------------------------------

    def _letter(self, token: Token, spins: bool) -> Letter:
        op, args = token.op, OPERAND.findall(token.args)
        first, last = (args[0], args[-1]) if args else ("", "")
        if found := BARRIER.match(op):
            return Letter(f"bar.{found[1]}", ", ".join(args))
        if op.startswith("griddepcontrol."):
            return Letter("griddepcontrol", op.partition(".")[2])
        if op.startswith("barrier.cluster."):
            return Letter(re.sub(r"\.(aligned|acquire|release)\b", "", op))
        if found := TENSOR.match(op):
            return self._copy(token, found[1], found[2], args)
        if op.startswith(PRODUCT):
            return Letter("wgmma.mma_async", f"{op.removeprefix(PRODUCT)} {_product(args)}")
        kind = NEUTRAL.sub("", op)
        if op == SEND and len(args) == 3:
            barrier = self._place(args[2], token.at, self.places.barriers.values())
            return Letter("st.async", "16 bytes", barrier, self._sent(args, token.at))
        if kind.startswith("mbarrier."):
            return self._mbarrier(token, kind, args, spins)
        if (found := FLAG.match(kind)) and (found[1] or ".release" in op):
            amount = "a register" if last[:1] == "%" else last
            return Letter(f"red{found[1] or '.release'}.gpu.{found[2]}", amount)
        if kind.startswith("ld.gpu") and ".acquire" in op:
            return Letter("ld.acquire.gpu" if spins else "ld.acquire.gpu outside of a loop")
        if op == "fence.proxy.async":
            return Letter(op, EVERYWHERE)
        if kind == "bar.warp" and first in ("-1", "0xffffffff", "4294967295"):
            return Letter("bar.warp.sync")
        if kind == "elect":
            return Letter("elect.sync")
        return Letter(kind, ", ".join(args))

    def _mbarrier(self, token: Token, kind: str, args: list[str], spins: bool) -> Letter:
        address = next((arg for arg in args if arg[0] == "["), "")
        place = self._place(address, token.at, self.places.barriers.values())
        if kind == "mbarrier.init":
            offsets = self.values.offsets(address, token.at)
            for items in self.places.barriers.values():
                if offsets is not None and len(offsets) == 1 and items.name == place:
                    place += f"[{(min(offsets) - items.start) // items.stride}]"
            return Letter(kind, args[-1], place)
        if kind == "mbarrier.try_wait.parity":
            kind = "mbarrier.try_wait" if spins else "mbarrier.try_wait outside of a loop"
            return Letter(kind, "", place)
        rest = [arg for arg in args[1:] if arg[0] != "["]
        if "shared::cluster" in token.op:
            to = self._targets(address, token.at)
            return Letter(f"remote {kind}", ", ".join(rest), place, to)
        return Letter(kind, ", ".join(rest), place)

    def _targets(self, address: str, at: int) -> str:
        """The CTA that an address lies in, for each one of the cluster."""
        exact = (Exact(self.values, rank) for rank in sorted(self.values.ranks))
        return ctas([each.target(address, at) for each in exact])

    def _sent(self, args: Sequence[str], at: int) -> str:
        """To which CTA, and where there each warpgroup's first thread sends its part."""
        to, counted = self._targets(args[0], at), self._targets(args[2], at)
        if to != counted:
            return f"{to}, counted on {counted}"
        threads = range(0, self.places.num_threads, 128)
        return sent(to, [Exact(self.values, 0, t).offset(args[0], at) for t in threads])

    def _copy(self, token: Token, rank: str, form: str, args: list[str]) -> Letter:
        reduces = token.op.startswith("cp.reduce.")
        if form == (REDUCE if reduces else STORE):
            return Letter("TMA reduction" if reduces else "TMA store", rank)
        many = form == f"{LOAD}.multicast::cluster"
        if not (form == LOAD or many) or len(args) != 3 + many:
            return Letter(token.op, token.args)
        barrier = self._place(args[2], token.at, self.places.barriers.values())
        to = self._place(args[0], token.at, self.places.destinations.values())
        return Letter("multicast TMA load" if many else "TMA load", rank, barrier, to)

    def _place(self, address: str, at: int, known: Iterable[Items]) -> str:
        """The only array that an address can point into, with any stage."""
        offsets = self.values.offsets(address, at)
        if offsets is None:
            return UNKNOWN
        names = {items.name for items in known if offsets <= frozenset(items.values())}
        if len(names) > 1:
            return UNKNOWN
        return names.pop() if names else f"SMEM at {sorted(offsets)}"


def _only_entries(
    tokens: Sequence[Token], spins: Collection[int], tables: Mapping[str, Sequence[str]]
) -> dict[int, int]:
    """By a label's place the one from which threads come to it, if that is one."""
    places = {t.label: t.at for i, t in enumerate(tokens) if t.label and i not in spins}
    entries: dict[str, list[int]] = {label: [] for label in places}
    for label in (label for targets in tables.values() for label in targets):
        entries.get(label, []).extend((0, 0))  # as many as can be
    for i, token in enumerate(tokens):
        if token.target in entries:
            entries[token.target].append(token.at)
        if token.label in entries:
            before = tokens[i - 1] if i else token
            leaves = before.op.partition(".")[0] in ("bra", "brx", "ret", "exit", "trap")
            if not leaves or before.guard:
                entries[token.label].append(token.at - 1)
    return {places[label]: found[0] for label, found in entries.items() if len(found) == 1}


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
        elif event.op.startswith("ld.acquire") and not event.guard:
            yield from (i, i + 1, i + 2)
