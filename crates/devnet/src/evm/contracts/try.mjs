// Deploys every contract of contracts.json on a private anvil and sees that each does what it says.
//
//   tests/tools/node.sh crates/devnet/src/evm/contracts/try.mjs
import { strict as assert } from 'node:assert';
import { execFileSync, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { seeded, tool } from '../../../../../tests/tools/golden.mjs';

const ethers = tool('ethers');
const contracts = JSON.parse(readFileSync(new URL('contracts.json', import.meta.url), 'utf8'));
const program = execFileSync(fileURLToPath(new URL('../../../../../tests/tools/anvil.sh', import.meta.url)), { encoding: 'utf8' }).trim();

// Port 0: anvil takes a free one and says which.
const anvil = spawn(program, ['--port', '0', '--chain-id', '31337', '--steps-tracing'], { stdio: ['ignore', 'pipe', 'inherit'] });
process.on('exit', () => anvil.kill());
const url = await new Promise((resolve, reject) => {
  let said = '';
  anvil.stdout.on('data', (more) => {
    said += more;
    const found = /Listening on ([\d.:]+)/.exec(said);
    if (found) resolve(`http://${found[1]}`);
  });
  anvil.on('exit', () => reject(new Error(`anvil stopped:\n${said}`)));
});

const provider = new ethers.JsonRpcProvider(url, 31337, { staticNetwork: true, cacheTimeout: -1, pollingInterval: 20 });
const [owner, other] = [await provider.getSigner(0), await provider.getSigner(1)];
const someone = (...words) => ethers.computeAddress(ethers.hexlify(seeded('try', ...words)));
const deploy = async (name, ...args) => {
  const made = await new ethers.ContractFactory(contracts[name].abi, contracts[name].bytecode, owner).deploy(...args);
  await made.waitForDeployment();
  assert.equal(await provider.getCode(made.target), `0x${contracts[name].runtime}`, `${name}: the runtime code is another`);
  return made;
};
const done = async (sent) => (await sent).wait();
const transfers = (contract, receipt) =>
  receipt.logs.map((log) => contract.interface.parseLog(log)).filter((log) => log?.name === 'Transfer').map(({ args }) => [...args]);
const answer = (contract, name, ...args) => provider.call({ to: contract.target, from: owner.address, data: contract.interface.encodeFunctionData(name, args) });
const bool = (value) => ethers.toBeHex(value ? 1 : 0, 32);
const to = someone('to');

const plain = await deploy('Plain', 1000n);
assert.equal(await plain.decimals(), 18n);
assert.equal(await answer(plain, 'transfer', to, 10n), bool(true));
assert.deepEqual(transfers(plain, await done(plain.transfer(to, 10n))), [[owner.address, to, 10n]]);
assert.deepEqual([await plain.balanceOf(to), await plain.balanceOf(owner.address), await plain.totalSupply()], [10n, 990n, 1000n]);
await assert.rejects(plain.transfer(to, 991n), /balance is short/);
await done(plain.approve(other.address, 5n));
await done(plain.connect(other).transferFrom(owner.address, to, 5n));
assert.deepEqual([await plain.balanceOf(to), await plain.allowance(owner.address, other.address)], [15n, 0n]);
await assert.rejects(plain.connect(other).transferFrom(owner.address, to, 1n));

const tether = await deploy('Tether', 'USDT', 6, 1_000_000n);
assert.deepEqual([await tether.symbol(), await tether.decimals(), await tether.totalSupply()], ['USDT', 6n, 1_000_000n]);
assert.equal(await answer(tether, 'transfer', to, 10n), '0x', 'it must return nothing');
assert.deepEqual(transfers(tether, await done(tether.transfer(to, 10n))), [[owner.address, to, 10n]]);
assert.deepEqual([await tether.balanceOf(to), await tether.balanceOf(owner.address)], [10n, 999_990n]);
await assert.rejects(tether.transfer(to, 1_000_000n), /balance is short/);
await done(tether.approve(other.address, 5n));
await assert.rejects(tether.approve(other.address, 6n), /reset the allowance/);
await done(tether.connect(other).transferFrom(owner.address, to, 5n));
assert.equal(await tether.balanceOf(to), 15n);

const falsy = await deploy('False', 100n, false);
assert.deepEqual(transfers(falsy, await done(falsy.transfer(to, 60n))), [[owner.address, to, 60n]]);
assert.equal(await answer(falsy, 'transfer', to, 60n), bool(false));
const short = await done(falsy.transfer(to, 60n));
assert.deepEqual([short.status, short.logs.length, await falsy.balanceOf(to)], [1, 0, 60n]);
await done(falsy.setAlways(true));
assert.deepEqual([await answer(falsy, 'transfer', to, 1n), (await done(falsy.transfer(to, 1n))).logs.length, await falsy.balanceOf(to)], [bool(false), 0, 60n]);

const collector = someone('collector');
const taxed = await deploy('Taxed', 10_000n, collector);
assert.deepEqual(transfers(taxed, await done(taxed.transfer(to, 1000n))), [[owner.address, collector, 10n], [owner.address, to, 990n]]);
assert.deepEqual([await taxed.balanceOf(to), await taxed.balanceOf(collector), await taxed.balanceOf(owner.address)], [990n, 10n, 9000n]);

const liar = await deploy('Liar', 100n);
assert.deepEqual(transfers(liar, await done(liar.transfer(to, 50n))), [[owner.address, to, 50n]]);
assert.deepEqual(transfers(liar, await done(liar.lie(other.address, to, 7n))), [[other.address, to, 7n]]);
assert.deepEqual([await liar.balanceOf(to), await liar.balanceOf(owner.address)], [0n, 100n]);

const moody = await deploy('Moody', 100n);
const moods = [];
for (let number = 0; number < 3; number++) {
  // Mined as it is, whatever a node thinks of it beforehand.
  const sent = await owner.sendTransaction({ to: moody.target, data: moody.interface.encodeFunctionData('transfer', [to, 1n]), gasLimit: 100_000 });
  const mined = await provider.waitForTransaction(sent.hash, 1).catch((error) => error.receipt);
  moods.push([mined.status, mined.blockNumber % 3 === 0 ? 0 : 1]);
}
assert(moods.every(([is, must]) => is === must) && moods.some(([is]) => is === 0), `${JSON.stringify(moods)}`);
assert.equal(await moody.balanceOf(to), 2n);

const disperse = await deploy('Disperse');
const many = [1, 2, 3].map((one) => someone('many', one));
await done(disperse.disperse(many, [1n, 2n, 3n], { value: 10n }));
assert.deepEqual(await Promise.all(many.map((one) => provider.getBalance(one))), [1n, 2n, 3n]);
assert.equal(await provider.getBalance(disperse.target), 0n, 'the rest goes back');
await assert.rejects(disperse.disperse(many, [5n, 5n, 5n], { value: 10n }));
const [kept, undone] = [someone('kept'), someone('undone')];
const receipt = await done(disperse.pretend(kept, undone, 5n, { value: 10n }));
assert.deepEqual([receipt.status, await provider.getBalance(kept), await provider.getBalance(undone)], [1, 5n, 0n]);
const trace = JSON.stringify(await provider.send('debug_traceTransaction', [receipt.hash, { tracer: 'callTracer' }])).toLowerCase();
assert(trace.includes(`"to":"${undone.toLowerCase()}"`), 'the trace must show the payment that did not happen');

console.error(`all ${Object.keys(contracts).length} contracts do what they say`);
process.exit(0);
