"""Make a virtual environment with pip in it: `python make_venv.py DIRECTORY`.

Debian and Ubuntu cut `ensurepip` out of Python into a package of its own (python3-venv). Where it
is missing, pip is fetched from PyPI; where that fails too, the message says what to install.
"""

import hashlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import venv
from pathlib import Path

PIP = "https://pypi.org/pypi/pip/json"


def main(directory: str) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    print(f"Making {directory} with Python {version} ({sys.executable})", flush=True)
    if importlib.util.find_spec("ensurepip") is not None:
        venv.create(directory, with_pip=True, symlinks=True)
        return
    venv.create(directory, with_pip=False, symlinks=True)
    try:
        install_pip(Path(directory) / "bin" / "python")
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit(
            f"This Python has no `ensurepip`, and pip could not be fetched from PyPI ({error}).\n"
            f"On Debian and Ubuntu: apt install python{version}-venv, then run make again."
        )


def install_pip(python: Path) -> None:
    """A wheel of pip can install itself."""
    with urllib.request.urlopen(PIP, timeout=60) as reply:
        files = json.load(reply)["urls"]
    wheel = next(f for f in files if f["packagetype"] == "bdist_wheel")
    with urllib.request.urlopen(urllib.parse.urljoin(PIP, wheel["url"]), timeout=60) as reply:
        content = reply.read()
    if hashlib.sha256(content).hexdigest() != wheel["digests"]["sha256"]:
        raise OSError("the downloaded wheel does not have the digest that PyPI states")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / wheel["filename"]
        path.write_bytes(content)
        command = [python, f"{path}/pip", "install", "--quiet", "--no-index", path]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
