"""The messages of collectives: ``rounds`` (of any algorithm, on any network), those of ``gloo`` and of ``nccl``."""
