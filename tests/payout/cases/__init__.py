"""What happens to chains, nodes and workers while jobs are paid. Each case takes the world and says in words what it did.

| module | its cases |
|---|---|
| `usual` | nothing unusual, workers that die, nodes that answer errors, lag or are silent, reorganisations |
| `pool` | prices above the cap, pools that forget, gaps at the front |
| `foreign` | another program with the wallet's key, a database that is older than its signer |
| `tron` | payouts that run out of time, prices that change, nodes that refuse and mine all the same |
"""

CASES = {}


def case(chain, mixed=True, red=None, heals=True, timed=False, **limits):
    """`chain`: the one it needs. `mixed`: it may be a part of the random run. `red`: why the program is known to fail it; it is played only
    when it is asked for. `heals`: it begins with nodes that are well, whatever happened
    before. `timed`: nobody may set the clock forward or
    stop workers but the case itself. `limits`: what the treasury file says of anvil, in a world of its own."""
    def add(function):
        function.chain, function.mixed, function.red, function.limits = chain, mixed and not red and not limits, red, limits
        function.heals, function.timed = heals, timed
        CASES[function.__name__.replace("_", "-")] = function
        return function
    return add


# Each adds its cases to CASES.
from . import foreign, pool, tron, usual  # noqa: E402, F401
