"""Draw a timeline: the work units of SMs or clusters over time."""

import colorsys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from wsdsl.report.figure import KINDS, save, subplots
from wsdsl.report.timeline import Bar, Timeline

GOLDEN = 0.61803398875
"""Part of the circle of hues between consecutive tiles, so that adjacent tiles differ most."""
WAIT, PARTIAL_SUMS = KINDS["wait"][1], "#444444"
CTAS = "#54a24b", "#b6dfae"


def draw_timeline(
    timeline: Timeline, path: Path, heading: str, details: Sequence[str] = ()
) -> Path:
    """Draw SMs or clusters (rows) over time in µs, a color per output tile.

    FigureError for another suffix than those of SUFFIXES, or without matplotlib.
    """
    figure, axes = subplots(path, len(timeline.rows), 0.05, heading, details)
    unit, resident = 1 / (1000 * timeline.clock), timeline.prediction.resident
    for row, bars in enumerate(timeline.rows):
        styles: dict[tuple[bool, str, int], list[Bar]] = defaultdict(list)
        for bar in bars:
            hatch = "////" if bar.partial and bar.kind == "products" else ""
            styles[bar.beside, hatch, bar.slot].append(bar)
        for (beside, hatch, slot), alike in sorted(styles.items()):
            spans = [(bar.start * unit, (bar.stop - bar.start) * unit) for bar in alike]
            fills = [color(bar, len(timeline.rows) * resident) for bar in alike]
            style = dict(facecolors=fills, hatch=hatch or None, zorder=2 + beside)
            height = 0.9 / resident
            place = row + (0.54 if beside else slot * height), 0.36 if beside else height
            axes.broken_barh(spans, place, edgecolor="white", linewidth=0, **style)
    at, number = timeline.start + timeline.wave, 1
    while at < timeline.cycles * 1.001 and timeline.wave > 0.01 * timeline.cycles:
        axes.axvline(at * unit, color="#222222", linestyle="--", linewidth=0.8, zorder=4)
        if timeline.wave > 0.05 * timeline.cycles:
            place = dict(transform=axes.get_xaxis_transform(), ha="right", fontsize=7)
            axes.text(at * unit, 1.01, f"wave {number}", **place)
        at, number = at + timeline.wave, number + 1
    axes.set(xlim=(0, timeline.microseconds), ylim=(len(timeline.rows), 0))
    axes.set_xlabel("µs since the launch (dashed: a wave of whole tiles would end)")
    axes.set_ylabel("SM" if timeline.cluster == 1 else f"cluster of {timeline.cluster} SMs")
    if timeline.prediction.plain:
        entries = {"CTA of one tile": CTAS[0], "next CTA on that SM": CTAS[1]}
    else:
        sample = next(bar for bar in timeline.bars if bar.kind == "products")
        entries = {"MMA of a tile": color(sample)}
    if timeline.cut:
        entries |= {"split-K fixup": PARTIAL_SUMS, "wait for partial accumulators": WAIT}
    return save(figure, path, entries)


def color(bar: Bar, per_wave: int = 1) -> str:
    """Choose the color of a bar: bright for the MMA of a tile, dark for its epilogue; alternating
    for the waves of a memory-bound kernel, of `per_wave` tiles each.
    """
    if bar.kind == "tile":
        return CTAS[bar.tile // per_wave % 2]
    if bar.kind in ("wait", "sums"):
        return WAIT if bar.kind == "wait" else PARTIAL_SUMS
    light, saturation = (0.66, 0.62) if bar.kind == "products" else (0.34, 0.7)
    light += 0.05 * (bar.tile % 3 - 1)
    parts = colorsys.hls_to_rgb((bar.tile * GOLDEN) % 1, light, saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)
