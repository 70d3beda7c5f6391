// Drives the EVM devnet with ethers. Arguments: the node's URL and the token's address. It mines by `evm_mine`.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.BURSAR_TEST_NODE_MODULES}/`);
const { Contract, JsonRpcProvider, Wallet, parseEther, parseUnits } = require('ethers');

const [url, tokenAddress] = process.argv.slice(2);
const provider = new JsonRpcProvider(url, undefined, { pollingInterval: 50, cacheTimeout: -1 });
const mine = () => provider.send('evm_mine', []);
const mined = async (sent) => {
  await mine();
  return sent.wait();
};
const refusedAs = (code, promise) => assert.rejects(promise, (error) => error.code === code, code);

const wallet = new Wallet('0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80', provider);
const other = new Wallet('0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d', provider);
const receiver = '0x00000000000000000000000000000000DeaDBeef';

assert.equal((await provider.getNetwork()).chainId, 56n);
assert.equal(await provider.getBalance(wallet.address), parseEther('10000'));

// Coins, with both kinds of fees.
const { gasPrice, maxFeePerGas } = await provider.getFeeData();
const legacy = await mined(await wallet.sendTransaction({ to: receiver, value: 1n, type: 0, gasPrice }));
assert.equal(legacy.status, 1);
// ethers takes a base fee of zero, as BSC has it, for none, and then offers nothing by itself.
const tip = maxFeePerGas === null ? { maxFeePerGas: gasPrice, maxPriorityFeePerGas: gasPrice } : {};
const dynamic = await mined(await wallet.sendTransaction({ to: receiver, value: 2n, type: 2, ...tip }));
assert.equal(dynamic.gasUsed, 21000n);
assert.equal(await provider.getBalance(receiver), 3n);
const spent = legacy.fee + dynamic.fee + 3n;
assert.equal(await provider.getBalance(wallet.address), parseEther('10000') - spent);
const block = await provider.getBlock(dynamic.blockNumber, true);
assert.equal(block.hash, dynamic.blockHash);
assert.equal(block.prefetchedTransactions[0].hash, dynamic.hash);
assert.equal(block.prefetchedTransactions[0].value, 2n);

// Tokens that return nothing.
const abi = [
  'function transfer(address to, uint256 value)',
  'function balanceOf(address) view returns (uint256)',
  'function decimals() view returns (uint8)',
  'function symbol() view returns (string)',
  'event Transfer(address indexed from, address indexed to, uint256 value)',
];
const token = new Contract(tokenAddress, abi, wallet);
assert.equal(await token.symbol(), 'USDT');
assert.equal(await token.decimals(), 18n);
assert.equal(await token.balanceOf(wallet.address), parseUnits('1000000', 18));
const gas = await token.transfer.estimateGas(receiver, 5n);
assert.ok(gas > 21000n && gas < 100000n);
const moved = await mined(await token.transfer(receiver, 5n));
assert.equal(moved.status, 1);
assert.equal(await token.balanceOf(receiver), 5n);
const events = await token.queryFilter(token.filters.Transfer(null, receiver), 0, 'latest');
assert.equal(events.length, 1);
assert.equal(events[0].args.value, 5n);
assert.equal(events[0].transactionHash, moved.hash);
await refusedAs('CALL_EXCEPTION', token.transfer.staticCall(receiver, parseUnits('2000000', 18)));
const failed = await token.transfer(receiver, parseUnits('2000000', 18), { gasLimit: 100000n });
await mine();
await refusedAs('CALL_EXCEPTION', failed.wait());
assert.equal((await provider.getTransactionReceipt(failed.hash)).status, 0);

// Replacement, and what a node refuses.
const nonce = await provider.getTransactionCount(wallet.address);
const fees = { maxFeePerGas: parseUnits('10', 'gwei'), maxPriorityFeePerGas: parseUnits('1', 'gwei') };
const first = await wallet.sendTransaction({ to: receiver, value: 7n, nonce, ...fees });
const bumped = (percent) => ({
  maxFeePerGas: (fees.maxFeePerGas * percent) / 100n,
  maxPriorityFeePerGas: (fees.maxPriorityFeePerGas * percent) / 100n,
});
await refusedAs('REPLACEMENT_UNDERPRICED', wallet.sendTransaction({ to: receiver, value: 8n, nonce, ...bumped(109n) }));
const second = await wallet.sendTransaction({ to: receiver, value: 8n, nonce, ...bumped(110n) });
assert.equal(await provider.getTransaction(first.hash), null);
assert.equal((await mined(second)).status, 1);
assert.equal(await provider.getTransactionReceipt(first.hash), null);
await refusedAs('NONCE_EXPIRED', wallet.sendTransaction({ to: receiver, nonce, ...fees }));
const whole = { to: receiver, value: parseEther('20000'), gasLimit: 21000n, ...fees };
await refusedAs('INSUFFICIENT_FUNDS', other.sendTransaction(whole));
assert.equal(await provider.getBalance(receiver), 11n);

// The past.
assert.equal(await provider.getBalance(receiver, legacy.blockNumber), 1n);
assert.equal(await token.balanceOf(receiver, { blockTag: moved.blockNumber - 1 }), 0n);
provider.destroy();
