"""Write the IR of a kernel after every pass to the folder of `WSDSL_DUMP`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wsdsl import config

if TYPE_CHECKING:
    from wsdsl.ir.op import Kernel
    from wsdsl.lowering.pipeline import Listener


def dumped(name: str, suffix: str, text: str) -> str:
    """Write a text to the folder, if there is one; return the text."""
    folder = config.DUMP.get()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    return text


def pass_dumps() -> list[Listener]:
    """Return listeners that write the IR after each pass that changes it, by the pass' index."""
    if config.DUMP.get() is None:
        return []
    from wsdsl.lowering.pipeline import PASSES

    places = {step.__name__: i for i, (step, _) in enumerate(PASSES, 1)}

    def dump(name: str, before: Kernel, after: Kernel) -> None:
        if before != after:
            dumped(after.name, f"{places[name]:02}.{name}.ir", str(after))

    return [dump]
