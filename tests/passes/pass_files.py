"""Pass files: `tests/passes/<pass>/<case>.diff` holds a kernel before and after one pass.

A file is a comment that names the behavior, then the IR with one marker per line: " " for lines
that the pass keeps, "-" for lines of the input, "+" for lines of the output. Input and output are
therefore both complete texts. A new file needs the input alone, each line after a "-" or " ";
`pytest tests/passes --update-golden` writes the output, to be reviewed in the diff.

The comment may end in `sizes: M=64 K=128`, the sizes that `choose_schedule` receives. The output
of `make_plan` is the page of the Plan; the output of a rejected kernel is the error.
"""

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from wsdsl.diagnostics import WsdslError
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify.verifier import verify
from wsdsl.lowering.passes.choose_schedule import choose_schedule
from wsdsl.lowering.passes.make_plan import make_plan
from wsdsl.lowering.passes.partition_loads import partition_loads

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class PassFile:
    comment: str
    source: str
    expected: str

    @property
    def sizes(self) -> dict[str, int]:
        _, _, given = self.comment.partition("sizes:")
        return {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", given)}

    def run(self, step: Callable[..., Kernel]) -> str:
        """The text after a pass. The input and the output are verified."""
        kernel = parse_kernel(self.source)
        verify(kernel)
        if step is partition_loads:
            kernel = make_plan(kernel)
        try:
            made = choose_schedule(kernel, self.sizes) if step is choose_schedule else step(kernel)
        except WsdslError as error:
            return f"{self.source}{type(error).__name__}: {error}\n"
        verify(made)
        return f"{made}{made.plan}\n" if step is make_plan else str(made)


def read(path: Path) -> PassFile:
    lines = path.read_text().splitlines(keepends=True)
    num = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    marked = [(line[0], line[1:]) for line in lines[num:]]
    sides = ["".join(text for mark, text in marked if mark in marks) for marks in (" -", " +")]
    return PassFile("".join(lines[:num]), *sides)


def write(path: Path, file: PassFile, output: str) -> None:
    path.write_text(file.comment + "".join(_marked(file.source, output)))


def _marked(source: str, output: str) -> Iterator[str]:
    before, after = (text.splitlines(keepends=True) for text in (source, output))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            yield from (f" {line}" for line in before[i1:i2])
        else:
            yield from (f"-{line}" for line in before[i1:i2])
            yield from (f"+{line}" for line in after[j1:j2])
