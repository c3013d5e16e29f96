"""The one table: a row per ratio, with what `must` and `aim` say. Nothing here fails a run."""

import dataclasses
import statistics


@dataclasses.dataclass
class Row:
    """What was measured, ours beside a peer's. A ratio above 1 means that ours is better, unless `must` says ≤."""
    part: str
    what: str
    ours: str
    peer: str = ""
    ratio: str = ""
    must: str = ""
    aim: str = ""

    def cells(self):
        return [self.what, self.ours, self.peer, self.ratio, self.must, self.aim]


HEAD = ["measured", "ours", "beside", "ratio", "must", "aim"]
ROWS = []
DETAILS = []


def add(*arguments, **named):
    ROWS.append(Row(*arguments, **named))


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell or "–" for cell in line) + " |" for line in lines)


def aligned(head, rows):
    """The same for a terminal."""
    lines = [[cell or "–" for cell in line] for line in (head, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def number(value):
    """With three significant digits, or whole thousands separated."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def rounds(values):
    return ", ".join(number(value) for value in values)


def ratio(ours, peers):
    """The median of the rounds' ratios, and every one, of values that count per second."""
    each = [mine / peer for mine, peer in zip(ours, peers)]
    return f"{statistics.median(each):.2f} ({', '.join(f'{one:.2f}' for one in each)})"
