"""What happens while customers withdraw. Each case takes the world and says in words what it did.

| module | its cases |
|---|---|
| `usual` | nothing unusual, requests in a crowd, refusals, batches, addresses of other customers |
| `twice` | names that are used twice, answers that do not come, cancels, approvals and requests at once |
| `people` | approvals: good, forged, missing; refusals |
| `chain` | a database that is older than its signer, reorganisations, hot wallets that have too little |
| `thief` | somebody who owns the database, or the server too |
| `queries` | what whoever watches types into psql |
"""

CASES = {}


def case(mixed=True, red=None, timed=False, compared=True, often=1, **limits):
    """`mixed`: it may be a part of the random run. `red`: why the program is known to fail it; it is played only when it is asked for. `timed`: nobody
    may set the clock forward or stop workers but the case itself. `compared`: books and chain agree afterwards; else the case itself says what must
    be. `limits`: see `World`."""
    def add(function):
        function.mixed, function.red, function.timed, function.compared = mixed and not red and not limits and compared, red, timed, compared
        function.limits, function.often = limits, often
        CASES[function.__name__.replace("_", "-")] = function
        return function
    return add


# Each adds its cases to CASES.
from . import chain, people, queries, thief, twice, usual  # noqa: E402, F401
