from .exemplars import ExemplarMemory as ExemplarMemory
from .exemplars import ExemplarStore as ExemplarStore
from .exemplars import ImagePaths as ImagePaths
from .exemplars import budget_of as budget_of
from .selection import SELECTIONS as SELECTIONS
from .selection import select as select
from .stream import POLICIES as POLICIES
from .stream import StreamMemory as StreamMemory
