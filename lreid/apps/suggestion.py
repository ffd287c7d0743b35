"""Name the command for lreid's own method at the end of a run of DwoPP, and say what it gains."""

from __future__ import annotations

from yacs.config import CfgNode

from lreid.training.command import changed_by, command_of

# mAP of retrace and of dwopp after the last task of benchmarks as they are; means of three seeds, docs/retrace.md.
MEASURED = {"synthetic-10": (91.7, 83.2), "new-places": (76.2, 71.4)}


def suggestion(cfg: CfgNode) -> str | None:
    """A line about ``retrace`` on the benchmark of a run of ``dwopp``; None for runs of other methods."""
    if cfg.METHOD.NAME != "dwopp":
        return None
    if cfg.BENCHMARK.NAME in MEASURED and not changed_by(cfg):
        retrace, dwopp = MEASURED[cfg.BENCHMARK.NAME]
        gain = f"ends at {retrace:.1f} mAP where dwopp ends at {dwopp:.1f} (means of three seeds)"
    else:
        gain = "was not measured like this (docs/retrace.md has where it gains and where it loses)"
    return f"retrace, lreid's own method, {gain}: {command_of(cfg, 'retrace')}"
