"""BoT-FT+: softmax-triplet fine-tuning with exemplars of past tasks."""

from __future__ import annotations

from lreid.data.records import Task
from lreid.methods.base import ExemplarMethod
from lreid.methods.bot_ft import BoTFineTuning


class BoTFineTuningPlus(ExemplarMethod, BoTFineTuning):
    """BoT-FT that looks at 500 exemplars in all beside each new task: "FT+" of DwoPP (BMVC 2022, Table 1).

    The paper gives the number of exemplars and nothing else. Our choices: herding, an equal share of the memory for
    every identity, batches drawn from the identities of the memory and of the task alike, and, as soon as there is
    an exemplar, a softmax over all identities seen. Without exemplars it is BoT-FT.
    """

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        if self.memory:
            self.first_class = 0  # the softmax begins with the first identity ever seen
