#!/usr/bin/env python3
"""Runs the commands that README.md and the pages under docs/ print, and compares what comes out with what they show.

    BURSAR=target/debug/bursar tests/documents.py             every page
    BURSAR=target/debug/bursar tests/documents.py PAGE…       only these
    tests/documents.py --list                                 what would be run, and what would not, with the reason

What a page may contain:

  ```console   A line that starts with "$ " is a command; a backslash at its end or a here-document continues it. The
               lines up to the next command are the expected output. If there are none, any output will do. `…` stands
               for any text within a line, and alone on a line for any number of lines. A blank line before the next
               command is there for the eye. A command must succeed, unless a line of the expected output starts with
               "error ". One that ends with "&" is given time to print what is expected.
  ```js        Three lines for node, run against the devnet that the page has started. They must print something.
  <!-- not run: REASON -->   before a block: it is left out, and listed.
  <!-- numbers vary -->      before a block: its output is a real run's. Another run may have another number wherever the
                             page has one, and so other widths of columns; but what is 0 on the page must be 0.

The commands of a page run in one shell, so that variables carry over, in a folder of their own with a copy of examples/ in
it. `cargo run --release --` is the built program here. Ports are other ones than those printed, so that a node or a server
on this machine is not in the way; in commands and in output they are translated. Everything that a page has started is
stopped at its end.

Nothing but Python's own library is needed, node for the JavaScript (tests/tools/node.sh), and OpenBao for commands that start with
`bao` (tests/tools/openbao.sh).
"""

import difflib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST_COMMAND_S = 300
# So many clients of other people are shown on this page, one for each chain.
SNIPPETS = {Path("docs/guide/devnet.md"): 3}
NOT_RUN = re.compile(r"<!-- not run: (.*?) -->$")
NUMBERS_VARY = "<!-- numbers vary -->"
# The ports that the pages print: the first, and how many follow each other.
PORTS = {"http": (7410, 1), "spot": (7411, 1), "control": (8600, 1), "evm": (8545, 3), "tron": (9090, 3),
         "bitcoin": (18443, 3), "vault": (8200, 1)}

# Stands before the program on PATH and gives it other ports. The demo takes free ones by itself.
PROGRAM = """#!/usr/bin/env python3
import os, sys
program, ports = {program!r}, {ports!r}
words = sys.argv[1:]
names = [word for at, word in enumerate(words) if not word.startswith("-") and words[at - 1:at] != ["--config"]]
if names[:1] == ["devnet"]:
    for chain in ["evm", "tron", "bitcoin", "control"]:
        words += [f"--{{chain}}-port", str(ports[chain])]
elif names[:2] == ["spot", "serve"]:
    words += ["--listen", f"127.0.0.1:{{ports['spot']}}"]
elif names[:2] == ["spot", "send"] or names[:2] == ["spot", "snapshot"]:
    words += ["--connect", f"127.0.0.1:{{ports['spot']}}"]
elif names[:1] != ["demo"]:
    os.environ["BURSAR_HTTP_OPERATIONS_LISTEN"] = ""
    os.environ["BURSAR_HTTP_LISTEN"] = f"127.0.0.1:{{ports['http']}}"
    os.environ["BURSAR_SPOT_ADDRESS"] = f"127.0.0.1:{{ports['spot']}}"
os.execv(program, ["bursar", *words])
"""


class Failed(Exception):
    """A page that does not say what is so."""


@dataclass
class Step:
    line: int
    text: str
    expected: list[str] = field(default_factory=list)
    javascript: bool = False
    numbers_vary: bool = False


@dataclass
class Page:
    path: Path
    steps: list[Step] = field(default_factory=list)
    left_out: list[tuple[int, str]] = field(default_factory=list)


def blocks(text):
    """Each fenced block: its line, its language, its lines, whether its numbers vary, and why it is not run."""
    lines, at, reason, vary = text.splitlines(), 0, None, False
    while at < len(lines):
        line = lines[at]
        if line.startswith("```"):
            start, language = at + 1, line[3:].strip()
            end = next((n for n in range(start, len(lines)) if lines[n].startswith("```")), None)
            if end is None:
                raise Failed(f"line {start}: a block that does not end")
            yield start, language, lines[start:end], vary, reason
            at, reason, vary = end, None, False
        elif found := NOT_RUN.match(line.strip()):
            reason = found.group(1)
        elif line.strip() == NUMBERS_VARY:
            vary = True
        elif line.strip():
            reason, vary = None, False
        at += 1


def steps(first_line, lines, vary):
    """The commands of a block, with what is expected of each."""
    found, at = [], 0
    while at < len(lines):
        line = lines[at]
        if not line.startswith("$ "):
            if not found and line.strip():
                raise Failed(f"line {first_line + at + 1}: output without a command")
            if found:
                found[-1].expected.append(line)
            at += 1
            continue
        step = Step(first_line + at + 1, line[2:], numbers_vary=vary)
        while lines[at].endswith("\\"):
            at += 1
            step.text += "\n" + lines[at]
        if here := re.search(r"<<-?\s*['\"]?(\w+)", step.text):
            while lines[at].strip() != here.group(1):
                at += 1
                if at == len(lines):
                    raise Failed(f"line {step.line}: the here-document does not end")
                step.text += "\n" + lines[at]
        found.append(step)
        at += 1
    for step in found:
        while step.expected and not step.expected[-1].strip():
            step.expected.pop()
        while step.expected and not step.expected[0].strip():
            step.expected.pop(0)
    return found


def read(path):
    page = Page(path)
    for line, language, lines, vary, reason in blocks((ROOT / path).read_text()):
        commands = any(text.startswith("$ ") for text in lines)
        if reason is not None:
            page.left_out.append((line, reason))
        elif language == "console":
            page.steps += steps(line, lines, vary)
        elif language == "js":
            if len([text for text in lines if text.strip()]) != 3:
                raise Failed(f"{path}:{line}: JavaScript of three lines is promised")
            page.steps.append(Step(line, "\n".join(lines) + "\n", javascript=True))
        elif commands:
            raise Failed(f"{path}:{line}: commands in a block that is not marked ```console")
    snippets = sum(step.javascript for step in page.steps)
    if snippets != SNIPPETS.get(path, snippets):
        raise Failed(f"{path}: {snippets} blocks of JavaScript, not {SNIPPETS[path]}")
    return page


def free(count, like):
    """So many free ports in a row, with as many digits as the port that is printed."""
    digits = len(str(like))
    lowest, highest = (2_000, 9_990) if digits == 4 else (20_000, 60_000)
    for first in range(lowest + os.getpid() % 500, highest, count + 7):
        held = []
        try:
            for port in range(first, first + count):
                listener = socket.socket()
                held.append(listener)
                listener.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for listener in held:
                listener.close()
    raise Failed(f"no {count} free ports of {digits} digits on this machine")


def literal(text, vary):
    """A piece of a line as a regular expression."""
    if not vary:
        return re.escape(text)
    found = ""
    for piece in re.split(r"(-?\d[\d,.]*|  +|─+)", text):
        if re.fullmatch(r"-?\d[\d,.]*", piece):
            found += r"0[0.]*" if not re.search(r"[1-9]", piece) else r"-?\d[\d,.]*"
        elif re.fullmatch(r"  +", piece):
            found += " +"
        elif re.fullmatch(r"─+", piece):
            found += "─+"
        else:
            found += re.escape(piece)
    return found


def pattern(step):
    """What is expected of a step, as a regular expression over whole lines."""
    parts = []
    for line in step.expected:
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            pieces = line.rstrip().split("…")
            parts.append(r"[^\n]*".join(literal(piece, step.numbers_vary) for piece in pieces) + r"\n")
    return re.compile("".join(parts))


def tidy(output):
    lines = [line.rstrip() for line in output.replace("\r", "\n").splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return "".join(line + "\n" for line in lines)


class Session:
    """One shell for a page, in a folder of its own."""

    def __init__(self, program, folder, bao=None):
        self.folder, self.count = folder, 0
        self.ports = {}
        taken = []
        for name, (printed, count) in PORTS.items():
            port = free(count, printed)
            while any(port < other + many and other < port + count for other, many in taken):
                port = free(count, printed) + os.urandom(1)[0] % 200
            taken.append((port, count))
            self.ports[name] = port
        self.work = folder / "work"
        self.work.mkdir()
        shutil.copytree(ROOT / "examples", self.work / "examples")
        tools = folder / "bin"
        tools.mkdir()
        wrapper = tools / "bursar"
        wrapper.write_text(PROGRAM.format(program=str(program), ports=self.ports))
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        if bao is not None:
            (tools / "bao").symlink_to(bao)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BURSAR_")}
        environment.pop("BURSAR", None)
        environment["PATH"] = f"{tools}:{environment['PATH']}"
        self.environment = environment
        self.shell = subprocess.Popen(["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE, cwd=self.work,
                                      env=environment, text=True, start_new_session=True)

    def translate(self, text, back=False):
        for name, (printed, count) in PORTS.items():
            for number in range(count):
                ports = (str(printed + number), str(self.ports[name] + number))
                before, after = reversed(ports) if back else ports
                text = re.sub(rf"(?<=127\.0\.0\.1:){before}\b", f"@{after}", text)
        return text.replace("127.0.0.1:@", "127.0.0.1:")

    def run(self, step):
        """Runs a command; gives what it printed and its exit code, waiting for what is expected of a background one."""
        self.count += 1
        script, output, status = (self.folder / f"{self.count}.{name}" for name in ["sh", "out", "status"])
        script.write_text(self.translate(re.sub(r"\bcargo run --release --(?= )", "bursar", step.text)) + "\n")
        self.shell.stdin.write(f". {script} >{output} 2>&1 </dev/null; echo $? >{status}.new; mv {status}.new {status}\n")
        self.shell.stdin.flush()
        deadline = time.monotonic() + LONGEST_COMMAND_S
        while not status.exists():
            if self.shell.poll() is not None:
                raise Failed(f"the shell ended; it printed:\n{self.said(output)}")
            if time.monotonic() > deadline:
                raise Failed(f"not done after {LONGEST_COMMAND_S} s; so far it printed:\n{self.said(output)}")
            time.sleep(0.02)
        deadline = time.monotonic() + 60
        background = re.search(r"&\s*(#.*)?$", step.text)
        while background and step.expected and time.monotonic() < deadline:
            if pattern(step).fullmatch(self.said(output)):
                break
            time.sleep(0.05)
        return self.said(output), int(status.read_text())

    def said(self, output):
        return tidy(self.translate(output.read_text(errors="replace"), back=True)) if output.exists() else ""

    def node(self, step, modules):
        self.count += 1
        beside = self.folder / "node_modules"
        if not beside.exists():
            beside.symlink_to(modules)
        script = self.folder / f"{self.count}.mjs"
        script.write_text(self.translate(step.text))
        done = subprocess.run(["node", script], cwd=self.work, env=self.environment, timeout=60, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return tidy(done.stdout), done.returncode

    def stop(self):
        for kind in [signal.SIGTERM, signal.SIGKILL]:
            try:
                os.killpg(self.shell.pid, kind)
                self.shell.wait(timeout=10)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue
            # The shell has ended; what it started in the background may need a moment more.
            for _ in range(100):
                try:
                    os.killpg(self.shell.pid, 0)
                except ProcessLookupError:
                    return
                time.sleep(0.05)


def check(step, output, status):
    if step.javascript:
        if status != 0 or not output:
            raise Failed(f"exit code {status}, output:\n{output or '(none)'}")
        return
    may_fail = any(line.startswith("error ") for line in step.expected)
    if step.expected and not pattern(step).fullmatch(output):
        shown = difflib.unified_diff([line.rstrip() + "\n" for line in step.expected], output.splitlines(True),
                                     "the page", "the program")
        raise Failed("it prints something else:\n" + "".join(shown))
    if status != 0 and not may_fail:
        raise Failed(f"exit code {status}, output:\n{output or '(none)'}")


def node_modules():
    if modules := os.environ.get("BURSAR_TEST_NODE_MODULES"):
        return Path(modules)
    folder = subprocess.run([ROOT / "tests/tools/node.sh"], check=True, text=True, stdout=subprocess.PIPE).stdout
    return Path(folder.strip()) / "node_modules"


def openbao():
    if program := os.environ.get("BURSAR_TEST_BAO"):
        return Path(program)
    return Path(subprocess.run([ROOT / "tests/tools/openbao.sh"], check=True, text=True, stdout=subprocess.PIPE).stdout.strip())


def run(page, program):
    started = time.monotonic()
    modules = node_modules() if any(step.javascript for step in page.steps) else None
    bao = openbao() if any(re.search(r"\bbao ", step.text) for step in page.steps) else None
    with tempfile.TemporaryDirectory(prefix="bursar-documents.") as folder:
        session = Session(program, Path(folder), bao)
        try:
            for step in page.steps:
                try:
                    output, status = session.node(step, modules) if step.javascript else session.run(step)
                    check(step, output, status)
                except (Failed, subprocess.TimeoutExpired) as failure:
                    command = step.text.rstrip().replace("\n", "\n  ")
                    raise Failed(f"{page.path}:{step.line}: {command}\n{failure}") from failure
        finally:
            session.stop()
    print(f"{page.path}: {len(page.steps)} commands, {time.monotonic() - started:.0f} s", flush=True)


def interrupted(_signal, _frame):
    sys.exit(130)


def main():
    signal.signal(signal.SIGTERM, interrupted)
    wanted = sys.argv[1:]
    if wanted and wanted[0] in ["-h", "--help"]:
        print(__doc__.strip())
        return 0
    only_list = wanted[:1] == ["--list"]
    names = [] if only_list else wanted
    paths = [Path(name).resolve().relative_to(ROOT) for name in names] or [
        Path("README.md"), Path("CONTRIBUTING.md"),
        *sorted(path.relative_to(ROOT) for folder in ["docs", "docs/guide"] for path in (ROOT / folder).glob("*.md")),
    ]
    program = Path(os.environ.get("BURSAR") or ROOT / "target/debug/bursar").resolve()
    if not only_list and not os.access(program, os.X_OK):
        print(f"error: {program} is not there; build it, or let BURSAR name another", file=sys.stderr)
        return 2
    try:
        pages = [page for page in map(read, paths) if page.steps or page.left_out]
        for page in pages:
            for line, reason in page.left_out:
                print(f"not run: {page.path}:{line}: {reason}")
        if only_list:
            for page in pages:
                for step in page.steps:
                    print(f"run: {page.path}:{step.line}: {step.text.splitlines()[0]}")
            return 0
        failures = 0
        for page in pages:
            if not page.steps:
                continue
            try:
                run(page, program)
            except Failed as failure:
                failures += 1
                print(f"\nerror: {failure}\n", file=sys.stderr, flush=True)
        return 1 if failures else 0
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2


sys.exit(main())
