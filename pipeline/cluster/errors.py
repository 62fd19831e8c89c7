"""Why a run could not be finished, as errors that need no Ray to be named."""


class Infeasible(RuntimeError):
    """A plan that the cluster cannot hold; the message has the numbers."""


class NoProgress(RuntimeError):
    """No shard was finished at any stage within the watchdog's time."""


class Stopped(RuntimeError):
    """The driver was asked to stop; what is done is kept."""


class LeaseLost(RuntimeError):
    """Another driver took a lease of this one, or none could be renewed."""


class WorkerFailed(RuntimeError):
    """A worker raised, or died too often; the message has Ray's account and the engine's."""
