"""Write and read manifests of exported kernels: JSON with a version and a SHA-256 of its content.

docs/export.md lists the fields. A class of `artifact/serialization.py` is an object with "class".
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from wsdsl.artifact.artifact import Artifact, deflated
from wsdsl.artifact.dispatch_table import Form
from wsdsl.artifact.serialization import of_json, to_json
from wsdsl.diagnostics import LaunchError
from wsdsl.export.type_check import has_type
from wsdsl.record import record
from wsdsl.regular_file import read_regular
from wsdsl.version import __version__

VERSION, FILE = 1, "manifest.json"
MIN_DRIVER = 12, 3
"""The CUDA version that the driver supports at least."""


@record
class Manifest:
    """An export, as it was read: `kernels` are JSON, `cubins` the contents of their files."""

    path: Path
    name: str
    doc: str | None
    driver: tuple[int, int]
    form: Form
    kernels: tuple[Any, ...]
    cubins: tuple[bytes, ...]
    native: tuple[str, bytes]
    """Key and machine code of the launch stub."""

    def artifact(self, index: int) -> Artifact:
        """Return a kernel, without its IR and PTX. LaunchError if it is malformed."""
        texts: Any = dict(deflated_ir=deflated(""), deflated_ptx=deflated(""))
        try:
            fields = {k: of_json(v) for k, v in self.kernels[index].items() if k != "cubin"}
            made = Artifact(**fields, **texts, cubin=self.cubins[index])
            has_type(made, Artifact)
        except Exception as error:  # of any constructor
            raise _malformed(self.path, error) from None
        return made


def content_of(
    name: str, doc: str | None, form: Form, kernels: Sequence[Artifact], native: tuple[str, bytes]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the manifest's content, and the other files by name."""
    files, described = {"launch_stub.bin": native[1]}, list[Any]()
    omitted = "class", "cubin", "deflated_ir", "deflated_ptx"
    for i, artifact in enumerate(kernels):
        assert artifact.cubin is not None
        files[file := f"kernel_{i}.cubin"] = artifact.cubin
        held = to_json(artifact, [])
        fields = {key: value for key, value in held.items() if key not in omitted}
        described.append({**fields, "cubin": _described(file, artifact.cubin)})
    content = {
        "name": name,
        "doc": doc,
        "wsdsl": __version__,
        "driver": [*MIN_DRIVER],
        "form": to_json(form, []),
        "kernels": described,
        "native": {"key": native[0], **_described("launch_stub.bin", native[1])},
    }
    return content, files


def text_of(content: Mapping[str, Any]) -> str:
    held = {"wsdsl_export": VERSION, "sha256": _digest(content), "content": content}
    return json.dumps(held, indent=1) + "\n"


def _described(file: str, data: bytes) -> dict[str, str]:
    return {"file": file, "sha256": hashlib.sha256(data).hexdigest()}


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read(folder: Path) -> Manifest:
    """Read an export. LaunchError if a file is missing or damaged, or for another version."""
    path = folder / FILE
    try:
        held: Any = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise _malformed(path, error) from None
    if not isinstance(held, dict) or "wsdsl_export" not in held:
        raise LaunchError(f"WS1151 {path} is not a manifest of exported kernels")
    version = held["wsdsl_export"]
    if type(version) is not int or version != VERSION:
        message = f"WS1152 {path} has version {version!r}; wsdsl {__version__} reads {VERSION}"
        raise LaunchError(message, hint="install the wsdsl that wrote it, or export again")
    content: Any = cast("dict[str, Any]", held).get("content")
    if (found := _digest(content)) != held.get("sha256"):
        message = f"WS1153 {path} is damaged: its content has SHA-256 {found}, expected "
        raise LaunchError(f"{message}{held.get('sha256')}", hint="export again")
    try:
        kernels, native = tuple(content["kernels"]), content["native"]
        files = [*(kernel["cubin"] for kernel in kernels), native]
        *cubins, stub = [_file(folder, str(each["file"]), each["sha256"]) for each in files]
        form, driver = of_json(content["form"]), tuple(content["driver"])
        _check(form, len(kernels))
        given = content["name"], content["doc"], driver, native["key"], content["wsdsl"]
        if not has_type(given, tuple[str, str | None, tuple[int, int], str, str]):
            raise TypeError(f"the fields are {given}")
        return Manifest(path, *given[:3], form, kernels, tuple(cubins), (given[3], stub))
    except LaunchError:
        raise
    except Exception as error:  # of any constructor
        raise _malformed(path, error) from None


def _check(form: Form, num_kernels: int) -> None:
    if not has_type(form, Form):
        raise TypeError("`form` is not a Form")
    for inner in form.forms:
        _check(inner, num_kernels)
    if len(form.forms) != len(form.declaration.forms):
        raise ValueError("`forms` and `declaration.forms` differ in length")
    if not all(0 <= variant.kernel < num_kernels for variant in form.variants):
        raise ValueError(f"a variant has a kernel that is none of {num_kernels}")


def _file(folder: Path, name: str, wanted: str) -> bytes:
    if Path(name).name != name:
        raise ValueError(f"{name!r} is not the name of a file")
    data = _read(folder / name)
    if (found := hashlib.sha256(data).hexdigest()) != wanted:
        message = f"WS1154 {folder / name} is damaged: its SHA-256 is {found}, expected {wanted}"
        raise LaunchError(message, hint="export again")
    return data


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        message = f"WS1155 cannot read {path}: {error}"
        raise LaunchError(message, hint="give the folder of kernel.export()") from None


def _malformed(path: Path, error: Exception) -> LaunchError:
    message = f"WS1156 {path} is malformed: {type(error).__name__}: {error}"
    return LaunchError(message, hint="export again")
