// Drives the devnet with what others have written: the package `bitcoin-core` speaks to it, and bitcoinjs-lib builds and
// signs. Usage: BURSAR_TEST_NODE_MODULES=… node bitcoin.mjs host:port
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.env.BURSAR_TEST_NODE_MODULES, 'x.js'));
const Client = require('bitcoin-core');
const bitcoin = require('bitcoinjs-lib');
const ecc = require('@bitcoinerlab/secp256k1');
const { ECPairFactory } = require('ecpair');

bitcoin.initEccLib(ecc);
const client = new Client({ host: `http://${process.argv[2]}`, username: 'any', password: 'body' });
const rpc = (method, ...parameters) => client.command(method, ...parameters);
const refused = async (code, words, method, ...parameters) => {
  await assert.rejects(rpc(method, ...parameters), (error) => {
    assert.equal(error.code, code, error.message);
    assert.match(error.message, words);
    return true;
  });
};

const network = bitcoin.networks.regtest;
const secret = Buffer.from('ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80', 'hex');
const pair = ECPairFactory(ecc).fromPrivateKey(secret, { network });
const xonly = pair.publicKey.subarray(1, 33);
const wpkh = bitcoin.payments.p2wpkh({ pubkey: pair.publicKey, network });
const tr = bitcoin.payments.p2tr({ internalPubkey: xonly, network });
const tweaked = pair.tweak(bitcoin.crypto.taggedHash('TapTweak', xonly));
const sat = (coins) => BigInt(Math.round(coins * 1e8));

const coinsOf = async (address) => {
  const found = await rpc('scantxoutset', 'start', [`addr(${address})`]);
  assert.ok(found.success);
  return found.unspents;
};

const build = (coin, payment, outputs, sequence = 0xfffffffd) => {
  const psbt = new bitcoin.Psbt({ network });
  const taproot = payment === tr;
  psbt.addInput({
    hash: coin.txid,
    index: coin.vout,
    sequence,
    witnessUtxo: { script: payment.output, value: sat(coin.amount) },
    ...(taproot ? { tapInternalKey: xonly } : {}),
  });
  for (const [address, value] of outputs) psbt.addOutput({ address, value });
  psbt.signInput(0, taproot ? tweaked : pair);
  psbt.finalizeAllInputs();
  return psbt.extractTransaction(true);
};

// The coins that every devnet starts with.
const info = await rpc('getblockchaininfo');
assert.equal(info.chain, 'regtest');
const coins = await coinsOf(wpkh.address);
const taprootCoins = await coinsOf(tr.address);
assert.equal(coins.reduce((sum, coin) => sum + sat(coin.amount), 0n), 5_000_000_000n);
assert.equal(taprootCoins.length, 5);

// A payment from P2WPKH, and one from P2TR.
const to = 'bcrt1q6rhpng9evdsfnn833a4f4vej0asu6dk5srld6x';
assert.ok((await rpc('validateaddress', to)).isvalid);
const pay = build(coins[0], wpkh, [[to, 300_000_000n], [wpkh.address, 699_990_000n]]);
assert.deepEqual((await rpc('testmempoolaccept', [pay.toHex()])).map((one) => one.allowed), [true]);
assert.equal(await rpc('sendrawtransaction', pay.toHex()), pay.getId());
const fromTaproot = build(taprootCoins[0], tr, [[to, 999_990_000n]]);
assert.equal(await rpc('sendrawtransaction', fromTaproot.toHex()), fromTaproot.getId());
assert.deepEqual((await rpc('getrawmempool')).sort(), [pay.getId(), fromTaproot.getId()].sort());
assert.equal((await rpc('getmempoolentry', pay.getId())).vsize, pay.virtualSize());

// A replacement must pay more, and then what it replaced is gone.
const hardly = build(coins[0], wpkh, [[to, 300_000_000n], [wpkh.address, 699_989_999n]]);
await refused(-26, /^insufficient fee, rejecting replacement/, 'sendrawtransaction', hardly.toHex());
const better = build(coins[0], wpkh, [[to, 300_000_000n], [wpkh.address, 699_970_000n]]);
assert.equal(await rpc('sendrawtransaction', better.toHex()), better.getId());
await refused(-5, /Transaction not in mempool/, 'getmempoolentry', pay.getId());

// What is wrong is refused in Core's words.
const fresh = coins[1];
await refused(-22, /TX decode failed/, 'sendrawtransaction', '00');
await refused(-26, /^min relay fee not met, 0 < 11/, 'sendrawtransaction', build(fresh, wpkh, [[to, 1_000_000_000n]]).toHex());
await refused(-26, /^dust/, 'sendrawtransaction', build(fresh, wpkh, [[to, 100n], [to, 999_990_000n]]).toHex());
const forged = build(fresh, wpkh, [[to, 999_990_000n]]);
forged.outs[0].value = 999_980_000n;
await refused(-26, /script-verify-flag-failed/, 'sendrawtransaction', forged.toHex());
await refused(-8, /Block height out of range/, 'getblockhash', 1_000_000);
await refused(-32601, /Method not found/, 'getwalletinfo');

// Mined, read back, and never again.
const [hash] = await rpc('generatetoaddress', 1, to);
const block = bitcoin.Block.fromHex(await rpc('getblock', hash, 0));
assert.ok(block.checkTxRoots() && block.checkProofOfWork());
assert.equal(block.getId(), hash);
assert.equal(block.transactions.length, 3);
const read = await rpc('getrawtransaction', better.getId(), true);
assert.equal(read.confirmations, 1);
assert.equal(read.blockhash, hash);
assert.equal(read.vout[0].scriptPubKey.address, to);
assert.equal(bitcoin.Transaction.fromHex(read.hex).getId(), better.getId());
await refused(-27, /already in utxo set/, 'sendrawtransaction', better.toHex());
await refused(-25, /bad-txns-inputs-missingorspent/, 'sendrawtransaction', pay.toHex());
assert.equal((await rpc('gettxout', better.getId(), 0)).value, 3);
const batch = await client.command([{ method: 'getblockcount' }, { method: 'getbestblockhash' }]);
assert.deepEqual(batch, [info.blocks + 1, hash]);
console.log('ok');
