"""Report a run after every task."""

import logging
from pathlib import Path

from lreid.evaluation.observer import Observer
from lreid.report.page import write_report
from lreid.report.plots import learning_curve
from lreid.report.tables import task_table
from lreid.results import Results
from lreid.utils.files import write_atomically

logger = logging.getLogger("lreid")


class ReportObserver(Observer):
    """Print the table of finished tasks, and write the learning curve and the report into the run folder."""

    def after_save(self, folder: Path, results: Results) -> None:
        """Report all tasks so far."""
        logger.info("\n%s\n", task_table(results))
        if len(results["tasks"]) > 1:  # a curve needs two tasks
            figure = learning_curve([results])
            write_atomically(folder / "learning_curve.png", lambda file: figure.savefig(file, format="png", dpi=120))
        write_report(folder)
