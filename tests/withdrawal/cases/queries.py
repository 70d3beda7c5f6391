"""What whoever watches types into psql: the queries of the source, on a treasury that is at work."""

import os
import subprocess
from pathlib import Path

from deposit.program import PSQL

from . import case

SOURCE = Path(__file__).resolve().parents[3] / "crates/store/tests/it/sources/000.txt"
# What the guide says that whoever asks in the source's words sets: tables of ours have the names of some of its own.
SOURCES_FIRST = "-c search_path=sources,public"


def printed():
    """The queries of "Monitoring & Observability", by the words of their comments, each as it stands."""
    section = SOURCE.read_text().split("\n## Monitoring & Observability\n")[1].split("\n### Queries\n")[1]
    block = section.split("```sql\n")[1].split("```")[0]
    queries = [one for one in block.split("\n\n") if one.strip()]
    return {query.splitlines()[0].removeprefix("-- ").split(" (")[0]: query for query in queries}


def ask(world, query):
    """What psql says to it: lists of texts."""
    environment = {**os.environ, "PGOPTIONS": SOURCES_FIRST}
    done = subprocess.run([PSQL, world.program.url, "-XAtq", "-F", "\t", "-v", "ON_ERROR_STOP=1"], input=query, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        world.fail(f"psql does not run what the source prints:\n{query}\n{done.stderr}")
    return [line.split("\t") for line in done.stdout.splitlines()]


def number(world, uuid):
    """What an id of the source's views stands for here."""
    return int(world.program.psql(f"SELECT sources.number_of('{uuid}')"))


@case(mixed=False, timed=True)
def queries_of_the_source(world):
    """Each query of 000 runs in psql as it is printed (PostgreSQL), and says what customers were told."""
    if not world.is_postgres():
        return "SQLite has no psql"
    queries = printed()
    wanted = {"Pending withdrawals", "Active execution jobs", "Failed jobs", "Stuck jobs"}
    if set(queries) != wanted:
        world.fail(f"the source prints {set(queries)}, and this knows {wanted}")
    books = world.books
    paid, waits = [[books.ask(coins=coins) for _ in range(2)] for coins in ("0.4", "3")]
    world.must_be_taken([*paid, *waits])
    world.wait_for(paid, "completed", mines=True)
    # Nobody sends what is queued from here on, so that it stays where customers see it.
    senders = [world.worker("outbound"), world.worker("server-2")]
    for worker in senders:
        worker.kill()
    open_ = [books.new(coins="0.3") for _ in range(3)]
    for one in open_:
        books.send(one, 1)
    world.must_be_taken(open_)
    world.wait_until("jobs are made", lambda: all(books.look(one, 1).status == 200 and one.state == "queued" for one in open_))
    compare(world, queries, pending=waits, active=open_, failed=[])
    # One is called off before anything was signed for it.
    over = open_.pop()
    job = world.program.rows(f"SELECT job_id FROM withdrawal_jobs WHERE withdrawal_id = {over.id[3:]}")[0]["job_id"]
    world.program.run("job", "cancel", f"job-{job}", "--actor", "ann")
    world.wait_until("the customer has the money back", lambda: books.look(over, 1).status == 200 and over.state == "failed")
    compare(world, queries, pending=waits, active=open_, failed=[over])
    world.leases_pass()
    for worker in senders:
        worker.start()
    world.wait_for(open_, "completed", mines=True)
    compare(world, queries, pending=waits, active=[], failed=[over])
    return f"{len(queries)} queries, three times"


def compare(world, queries, pending, active, failed):
    """The queries' words against what customers were told, who asked for nothing else."""
    count = lambda words: int(ask(world, queries[words])[0][0])  # noqa: E731
    said = {"pending": count("Pending withdrawals"), "active": count("Active execution jobs")}
    told = {"pending": len(pending), "active": len(active)}
    if said != told:
        world.fail(f"the source's queries say {said}, and customers were told {told}")
    requests = sorted(number(world, row[1]) for row in ask(world, queries["Failed jobs"]))
    if requests != sorted(int(one.id[3:]) for one in failed):
        world.fail(f"the source's query says that {requests} have failed, and customers were told that {[one.id for one in failed]} have")
    stuck = ask(world, queries["Stuck jobs"])
    if stuck:
        world.fail(f"nothing is stuck, and the source's query names {stuck}")
