from .comparison import comparison_table as comparison_table
from .comparison import sensitivity_curve as sensitivity_curve
from .page import write_page as write_page
from .page import write_report as write_report
from .plots import learning_curve as learning_curve
from .tables import task_table as task_table
