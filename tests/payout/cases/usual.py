"""Nothing unusual, workers that die, nodes that answer errors, lag or are silent, reorganisations."""

from ..proxy import Answer
from . import case


@case("any")
def plain(world):
    """A few jobs on every chain, and blocks."""
    jobs = [job for chain in world.chains for job in world.add(chain, count=3)]
    world.wait_for_states(jobs, "confirming", "confirmed", mines=True)
    return f"{len(jobs)} jobs"


