"""Entropy coders of exponents, of well-kept libraries.

Neighbouring exponents are independent, so a Huffman code is all that pays, and strings that occur
again by chance cost more than they save. zlib has a mode without them, within 0.02 bits of the
entropy, and is always there; zstd, whose search is held to nearly none, takes 0.02 more, and is
decoded six times as quickly.
"""

from __future__ import annotations

import importlib
import importlib.util
import zlib
from dataclasses import dataclass
from typing import Any

from wsdsl.diagnostics import Finding, LaunchError

HARDLY_SEARCHED = dict(min_match=7, window_log=17, hash_log=6, strategy=1, target_length=0)


@dataclass(frozen=True)
class Coder:
    name: str

    def encode(self, raw: bytes) -> bytes:
        if self.name == "zstd":
            module = _zstandard()
            how = module.ZstdCompressionParameters.from_level(1, **HARDLY_SEARCHED)
            return module.ZstdCompressor(compression_params=how).compress(raw)
        made = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
        return made.compress(raw) + made.flush()

    def decode(self, coded: bytes, size: int) -> bytes | None:
        """None where that is not what was coded, or is of another size."""
        if self.name == "zstd":
            module = _zstandard()
            try:
                if module.frame_content_size(coded) != size:
                    return None
                return module.ZstdDecompressor().decompress(coded, max_output_size=size)
            except module.ZstdError:
                return None
        made = zlib.decompressobj(-15)
        try:
            raw = made.decompress(coded, size + 1)
        except zlib.error:
            return None
        return raw if made.eof and not made.unused_data else None


CODERS = {name: Coder(name) for name in ("zlib", "zstd")}


def coder_named(name: str) -> Coder:
    """LaunchError for one that is not known, or not installed."""
    if name not in CODERS:
        message = f"coder is {name!r}, expected one of {', '.join(CODERS)}"
        raise LaunchError(Finding(message))
    if name == "zstd" and importlib.util.find_spec("zstandard") is None:
        raise LaunchError(Finding("zstandard is not installed", hint="pip install 'wsdsl[zstd]'"))
    return CODERS[name]


def _zstandard() -> Any:
    return importlib.import_module("zstandard")
