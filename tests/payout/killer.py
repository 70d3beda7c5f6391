"""Kills workers and the signer at random while something else happens."""

import random
import threading


class Killer(threading.Thread):
    """As long as it is entered. It has a random of its own: when it strikes is up to the machine anyway."""

    def __init__(self, world, seed):
        super().__init__(daemon=True)
        self.world, self.random = world, random.Random(seed)
        self.over = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_trouble):
        self.over.set()
        self.join()

    def run(self):
        while not self.over.wait(self.random.uniform(0.1, 2.5)):
            worker = self.random.choice(self.world.workers)
            worker.kill()
            self.world.counts["kills"] += 1
            self.world.note(f"killed on the way: {worker.name}")
            self.over.wait(self.random.uniform(0, 0.4))
            # What it had is free after a while, and there is nobody who waits for it.
            self.world.leases_pass()
            worker.start()
            self.world.last_start = self.world.now()
