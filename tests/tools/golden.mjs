// What the scripts that make golden files share: tests/tools/node.sh runs them.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

if (!process.env.NODE_TOOLS) {
  console.error(`error: run it with tests/tools/node.sh ${process.argv[1]}, which knows where the packages are`);
  process.exit(2);
}

/** A package that node.sh has installed. An import would look for it beside the script, in the tree. */
export const tool = createRequire(`${process.env.NODE_TOOLS}/`);

/** 32 bytes that are the same in every run: what looks random in a golden file comes from here. */
export const seeded = (...words) => createHash('sha256').update(`bursar ${words.join(' ')}`).digest();

const lines = (value) =>
  Array.isArray(value)
    ? `[\n${value.map((one) => `  ${JSON.stringify(one)}`).join(',\n')}\n]`
    : `{\n${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${Array.isArray(one) ? lines(one) : JSON.stringify(one)}`).join(',\n')}\n}`;

/** Writes the value beside the script, a case a line; with --check it compares instead and exits 1 on a difference. */
export function golden(script, name, value) {
  const file = fileURLToPath(new URL(name, script));
  const text = `${lines(value)}\n`;
  if (!process.argv.includes('--check')) {
    writeFileSync(file, text);
    console.error(`wrote ${file}`);
    return;
  }
  let kept = '';
  try {
    kept = readFileSync(file, 'utf8');
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
  if (kept === text) return;
  const [ours, theirs] = [text.split('\n'), kept.split('\n')];
  const line = ours.findIndex((one, at) => one !== theirs[at]);
  const row = line < 0 ? ours.length : line;
  const column = [...(ours[row] ?? '')].findIndex((one, at) => one !== theirs[row]?.[at]);
  const excerpt = (one) => (one === undefined ? '(nothing)' : one.slice(Math.max(0, column - 60), column + 60));
  console.error(`error: ${file}:${row + 1}:${column + 1} is not what ${fileURLToPath(script)} makes`);
  console.error(`  file: ${excerpt(theirs[row])}\n  made: ${excerpt(ours[row])}`);
  process.exitCode = 1;
}
