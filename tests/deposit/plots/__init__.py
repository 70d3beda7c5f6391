"""What happens to the chains, the nodes and the workers. Each plot takes the world and says in words what it did.

| module | its plots |
|---|---|
| `usual` | payments, blocks, reorganisations, workers that die, nodes that lie |
| `owed` | users who owe something, accounts that are full |
| `nodes` | real nodes that go back in time, lag, lie together; deep reorganisations |
| `coins` | ten outputs, payments by contracts, remainders, tokens that are not what they seem |
"""

PLOTS = {}


def plot(often, times=5, red=None):
    """`often`: so many cards of the random run's deck. `times`: so often it is played as a case. `red`: why the program is known
    to disagree; such a plot is played only when it is asked for."""
    def add(function):
        function.often, function.times, function.red = often, times, red
        PLOTS[function.__name__.replace("_", "-")] = function
        return function
    return add


def any_user(world):
    return world.random.randint(1, world.users) if world.users else world.new_user()


# Each adds its plots to PLOTS.
from . import coins, nodes, owed, usual  # noqa: E402, F401
