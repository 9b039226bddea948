"""Write the folder of an export: cubins, a JSON manifest and a C launcher."""

from collections.abc import Sequence
from pathlib import Path

from wsdsl.artifact.artifact import Artifact
from wsdsl.artifact.dispatch_table import Form
from wsdsl.export.manifest import FILE, content_of, text_of
from wsdsl.export.tables import launcher
from wsdsl.runtime.native.launch_stub import shipped_code

MODULE = '''"""Exported kernel; `kernel` is loaded on first use."""


def __getattr__(name):
    if name != "kernel":
        raise AttributeError(name)
    from wsdsl import load_exported

    globals()["kernel"] = found = load_exported(__path__[0])
    return found
'''
"""The exported folder is a Python package."""


def write(
    folder: Path, name: str, doc: str | None, form: Form, artifacts: Sequence[Artifact]
) -> Path:
    content, files = content_of(name, doc, form, artifacts, shipped_code())
    text, cubins = text_of(content), [f for f in files.items() if f[0].endswith(".cubin")]
    sources = launcher(form, artifacts, cubins, text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)
    for file, data in files.items():
        (folder / file).write_bytes(data)
    for file, source in {**sources, "__init__.py": MODULE, FILE: text}.items():
        (folder / file).write_text(source, encoding="utf-8")
    return folder
