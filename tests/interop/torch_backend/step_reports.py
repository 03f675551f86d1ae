"""What recovering_rank.py writes after a step."""
import collections
import re

LINE = re.compile(r"step (\d+) (\w+) generation (\d+) pid (\d+) rank (\d+) world (\d+) lr (\S+) took (\S+)")


class Report(collections.namedtuple("Report", "step parameters generation pid rank world lr took")):
    @classmethod
    def read(cls, line):
        """-> None if it is none"""
        match = LINE.search(line)
        if match is None:
            return None
        step, generation, pid, rank, world = map(int, match.group(1, 3, 4, 5, 6))
        return cls(step, match[2], generation, pid, rank, world, match[7], [int(i) for i in match[8].split(",")])


def counted(reports):
    """Those of steps that count: if all ranks that had completed a step died, the others made it again.

    reports   of each process in the order of its steps"""
    last_steps = {report.pid: report.step for report in reports}
    newest = {report.step: report.generation for report in sorted(reports, key=lambda report: report.generation)}
    return [report for report in reports
            if report.generation == newest[report.step] or last_steps[report.pid] > report.step]
