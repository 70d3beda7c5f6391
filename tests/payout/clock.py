"""Builds clock.c, and sets it forward."""

import subprocess
from pathlib import Path


class Clock:
    def __init__(self, folder):
        self.file, self.ahead = folder / "clock", 0
        library = folder / "clock.so"
        source = Path(__file__).resolve().parent / "clock.c"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        self.file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "PAYOUT_CLOCK": str(self.file)}

    def pass_seconds(self, seconds):
        """For all programs at once. Nobody sees half of the number: it is one word of one page."""
        self.ahead += int(seconds * 1_000_000)
        with open(self.file, "r+b") as file:
            file.write(self.ahead.to_bytes(8, "little"))
