// Compiles the contracts beside it into contracts.json: {name: {abi, bytecode, runtime}}, hex without 0x.
//
//   tests/tools/node.sh crates/devnet/src/evm/contracts/compile.mjs [--check]
import { readFileSync, readdirSync } from 'node:fs';
import { golden, tool } from '../../../../../tests/tools/golden.mjs';

const solc = tool('solc');
const names = readdirSync(new URL('.', import.meta.url)).filter((name) => name.endsWith('.sol')).sort();
const sources = Object.fromEntries(names.map((name) => [name, { content: readFileSync(new URL(name, import.meta.url), 'utf8') }]));
const answer = JSON.parse(solc.compile(JSON.stringify({
  language: 'Solidity',
  sources,
  settings: {
    optimizer: { enabled: true, runs: 200 },
    evmVersion: 'paris', // before PUSH0, which some chains and TRON had late
    metadata: { bytecodeHash: 'none', appendCBOR: false }, // so that a changed comment changes no bytecode
    outputSelection: { '*': { '*': ['abi', 'evm.bytecode.object', 'evm.deployedBytecode.object'] } },
  },
})));
const errors = answer.errors ?? [];
for (const one of errors) console.error(one.formattedMessage);
if (errors.length > 0) process.exit(1); // a warning, too, is something to mend
golden(import.meta.url, 'contracts.json', Object.fromEntries(names.map((file) => {
  const name = file.replace(/\.sol$/, '');
  const { abi, evm } = answer.contracts[file][name];
  return [name, { abi, bytecode: evm.bytecode.object, runtime: evm.deployedBytecode.object }];
})));
