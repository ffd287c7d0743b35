"""Report a run after every task."""

import logging
from pathlib import Path

from lreid.evaluation.observer import Observer
from lreid.report.page import write_report
from lreid.report.plots import learning_curve, save_figure
from lreid.report.tables import task_table
from lreid.results import Results

logger = logging.getLogger("lreid")


class ReportObserver(Observer):
    """Print the table of finished tasks, and write the learning curve and the report into the run folder."""

    def after_save(self, folder: Path, results: Results) -> None:
        """Report all tasks so far."""
        logger.info("\n%s\n", task_table(results))
        if len(results["tasks"]) > 1:  # a curve needs two tasks
            save_figure(learning_curve([results]), folder / "learning_curve.png")
        write_report(folder)
