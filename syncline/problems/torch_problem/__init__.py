"""Anyone's torch module and data as a problem.

Read ``problem.py`` (what is given), then ``task.py`` (what is done with it). ``sources.py`` says how data is read,
``shards.py`` which items a worker sees, ``validation.py`` what is evaluated; ``batches.py`` what a batch is and how a
module is called on it; ``modules.py`` whose tensors a module works with, ``gradients.py`` how those of all workers get
theirs; ``look.py`` the first look at a module.
"""

from syncline.problems.torch_problem.problem import TorchProblem
from syncline.problems.torch_problem.task import TorchTask

__all__ = ["TorchProblem", "TorchTask"]
