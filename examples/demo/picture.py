"""What the demo shows: a line for each thing that happened, and, on a terminal, one at the bottom that is drawn again and again."""
import math
import shutil
import statistics
import time

REDRAW_S = 0.1
N_BARS = 24
N_MEAN = 10  # steps over which the loss is averaged
BARS = "▁▂▃▄▅▆▇█"
HEAD = f"{'time':>8}  {'step':>6}  {'loss':>6}  {'no step for':>11}  what happened"


def in_units(seconds):
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def loss_now(steps):
    return statistics.fmean(step.loss for step in steps[-N_MEAN:])


def averages(values, n):
    """At most n, each of as many values as the others."""
    size = max(1, -(-len(values) // n))
    parts = [values[i:i + size] for i in range(0, len(values), size)]
    return [sum(part) / len(part) for part in parts]


def curve(values, n=N_BARS):
    """A drawing of their logarithms, since most of a loss is gone in the beginning; the newest on the right."""
    heights = [math.log(max(mean, 1e-9)) for mean in averages(values, n)]
    low, high = min(heights), max(heights)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0
    return "".join(BARS[round((height - low) * scale)] for height in heights)


class Picture:
    def __init__(self, stream):
        self.stream = stream
        self.began_s = time.monotonic()
        self.drawn_s = 0
        self.is_live = stream.isatty()
        self.has_bars = "utf" in (stream.encoding or "").lower()

    def say(self, text=""):
        self.clear()
        print(text, file=self.stream, flush=True)

    def clear(self):
        if self.is_live:
            self.stream.write("\r\033[K")

    def begin(self):
        self.began_s = time.monotonic()
        self.say(HEAD)

    def elapsed_s(self):
        return time.monotonic() - self.began_s

    def tell(self, steps, pause_s, what):
        """One line of what is over. pause_s: None: it is none that others had to wait for"""
        number, loss = (f"{steps[-1].number}", f"{loss_now(steps):.3f}") if steps else ("", "")
        pause = "" if pause_s is None else in_units(pause_s)
        self.say(f"{self.elapsed_s():6.1f} s  {number:>6}  {loss:>6}  {pause:>11}  {what}")

    def draw(self, steps, nodes, n_ranks, doing):
        """The line at the bottom. Not more often than eyes can follow."""
        now = time.monotonic()
        if not self.is_live or not steps or now < self.drawn_s + REDRAW_S:
            return
        self.drawn_s = now
        bars = curve([step.loss for step in steps]) + "  " if self.has_bars else ""
        text = f"{self.elapsed_s():6.1f} s  {steps[-1].number:>6}  {loss_now(steps):6.3f}  {bars}{nodes}, {n_ranks} ranks  {doing}"
        self.clear()
        self.stream.write(text[:shutil.get_terminal_size().columns - 1])
        self.stream.flush()
