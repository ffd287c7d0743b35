"""Make tables, plots and an HTML page from the files ``results.json`` of runs."""

from lreid.report.page import write_page, write_report
from lreid.report.plots import learning_curve, sensitivity_curve
from lreid.report.tables import comparison_table, task_table

__all__ = ["comparison_table", "learning_curve", "sensitivity_curve", "task_table", "write_page", "write_report"]
