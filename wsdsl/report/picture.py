"""Pictures of rectangles, lines and text: SVG by hand, PNG by who can convert that."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from wsdsl.diagnostics import Finding, WsdslError

FONT = "font-family='Helvetica, Arial, sans-serif'"
PNG_SCALE = 2
HATCH_SPACING = 5


class PictureError(WsdslError):
    """A picture that can not be made here."""


@dataclass
class Picture:
    width: float
    height: float
    shapes: list[str] = field(default_factory=list[str])
    clips: list[str] = field(default_factory=list[str])

    def rectangle(
        self, at: tuple[float, float, float, float], fill: str, *, title: str = ""
    ) -> None:
        """`at`: x, y, width, height."""
        x, y, width, height = at
        told = f"<title>{escape(title)}</title>" if title else ""
        self.shapes.append(
            f"<rect x='{x:.2f}' y='{y:.2f}' width='{width:.2f}' height='{height:.2f}' "
            f"fill='{fill}'" + (f">{told}</rect>" if told else "/>")
        )

    def line(self, at: tuple[float, float, float, float], colour: str, dashes: str = "") -> None:
        """`at`: from x, y to x, y."""
        x1, y1, x2, y2 = at
        dashed = f" stroke-dasharray='{dashes}'" if dashes else ""
        self.shapes.append(
            f"<line x1='{x1:.2f}' y1='{y1:.2f}' x2='{x2:.2f}' y2='{y2:.2f}' "
            f"stroke='{colour}' stroke-width='1'{dashed}/>"
        )

    def text(
        self, x: float, y: float, text: str, size: float = 11, *, anchor: str = "start"
    ) -> None:
        self.shapes.append(
            f"<text x='{x:.2f}' y='{y:.2f}' font-size='{size:g}' {FONT} fill='#222' "
            f"text-anchor='{anchor}'>{escape(text)}</text>"
        )

    def hatch(self, places: list[tuple[float, float, float, float]]) -> None:
        """White oblique lines over these rectangles. (Not a pattern: what draws them for a PNG is
        often wrong.)
        """
        name = f"places{len(self.clips)}"
        inside = "".join(
            f"<rect x='{x:.2f}' y='{y:.2f}' width='{width:.2f}' height='{height:.2f}'/>"
            for x, y, width, height in places
        )
        self.clips.append(f"<clipPath id='{name}'>{inside}</clipPath>")
        left, right = min(p[0] for p in places), max(p[0] + p[2] for p in places)
        top, bottom = min(p[1] for p in places), max(p[1] + p[3] for p in places)
        high, ways = bottom - top, list[str]()
        for i in range(int((right - left + high) / HATCH_SPACING) + 1):
            x = left + i * HATCH_SPACING
            ways.append(f"M{x:.1f} {top:.1f}L{x - high:.1f} {bottom:.1f}")
        self.shapes.append(
            f"<path clip-path='url(#{name})' d='{''.join(ways)}' stroke='white' "
            f"stroke-width='{HATCH_SPACING * 0.28:.2f}'/>"
        )

    def svg(self) -> str:
        size = f"width='{self.width:g}' height='{self.height:g}'"
        return "\n".join(
            [
                f"<svg xmlns='http://www.w3.org/2000/svg' {size} "
                f"viewBox='0 0 {self.width:g} {self.height:g}'>",
                f"<defs>{''.join(self.clips)}</defs>",
                f"<rect {size} fill='white'/>",
                *self.shapes,
                "</svg>\n",
            ]
        )

    def save(self, path: Path) -> None:
        """By the name's ending; a PNG needs cairosvg. PictureError where it can not be."""
        kind = path.suffix.lower()
        if kind not in (".svg", ".png"):
            hint = "timeline.svg, or timeline.png"
            raise PictureError(Finding(f"`{path}` is no name of an SVG or PNG file", hint=hint))
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == ".png":
            try:
                cairosvg = importlib.import_module("cairosvg")
            except (ImportError, OSError) as error:
                hint = "pip install cairosvg, or write an .svg: browsers show it"
                message = f"a PNG is made by cairosvg, which is not here ({error})"
                raise PictureError(Finding(message, hint=hint)) from None
            cairosvg.svg2png(self.svg().encode(), write_to=str(path), scale=PNG_SCALE)
        else:
            path.write_text(self.svg())
