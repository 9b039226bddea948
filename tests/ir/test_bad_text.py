"""Text that is no IR is refused with its line, a caret under the fault, and what would be right."""

import pytest

from wsdsl.diagnostics import ParseError
from wsdsl.ir.parser import parse_kernel


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
    with pytest.raises(ParseError, match="ends too early"):
        parse_kernel(text)


def test_comments_and_spacing_are_free():
    spaced = "# a\nkernel  k @ tile()# b\n{\nsync_cta( ) # c\n}"
    assert parse_kernel(spaced) == parse_kernel("kernel k @ tile () {\n  sync_cta()\n}\n")
