from .page import write_page as write_page
from .page import write_report as write_report
from .plots import learning_curve as learning_curve
from .plots import sensitivity_curve as sensitivity_curve
from .tables import comparison_table as comparison_table
from .tables import task_table as task_table
