"""Run the Flower app on this machine: a SuperLink of the run's own, watched and cleaned up.

Imports neither flwr nor torch: Flower is driven through its commands, so the one who waits costs no memory.
"""

from regionfed_flwr.simulation.engine.run import RunOutcome, run_simulation

__all__ = ["RunOutcome", "run_simulation"]
