"""What happens to the wallet. A plot is a generator: at each `yield` it says what it did, and may wait for the program to be
brought to rest and compared. Alone it is a case (`--case NAME`); in the random run several are under way at the same time,
so a plot looks whether it is still possible, and counts only what has really happened.

| module | its plots |
|---|---|
| `money` | deposits, payouts, replacements, what leaves the mempools and comes back |
| `blocks` | blocks, reorganisations, coinbases, nodes that lag or go astray |
| `operation` | followers killed, leases, prunes, addresses added late; and what is only a case |
"""

PLOTS = {}


def plot(name, *promises, once=False):
    """`promises`: what it counts at least once when all goes well. `once`: not for the random run."""
    def add(function):
        PLOTS[name] = function
        function.promises, function.once = promises, once
        return function
    return add


# Each adds its plots to PLOTS.
from . import blocks, money, operation  # noqa: E402, F401
