// Holds addresses.json and transactions.json against Bitcoin Core itself: a private bitcoind for each network, without
// peers. It asks with the npm client bitcoin-core, so that somebody else's client has talked to this node, too.
//
//   tests/tools/node.sh crates/tx/tests/vectors/bitcoin/try.mjs
import { strict as assert } from 'node:assert';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { tool } from '../../../../../tests/tools/golden.mjs';

const Client = tool('bitcoin-core');
const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), 'utf8'));
const program = execFileSync(fileURLToPath(new URL('../../../../../tests/tools/bitcoind.sh', import.meta.url)), { encoding: 'utf8' }).trim();

async function free() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  return port;
}

async function beside(chain, act) {
  const folder = mkdtempSync(join(tmpdir(), 'bursar-bitcoind.'));
  const port = await free();
  const node = spawn(program, [`-chain=${chain}`, `-datadir=${folder}`, `-rpcport=${port}`, '-rpcuser=u', '-rpcpassword=p', '-listen=0', '-connect=0', '-dnsseed=0', '-printtoconsole=0', '-prune=550'], { stdio: 'inherit' });
  const end = () => node.kill();
  process.on('exit', end); // also when something throws where nobody catches
  try {
    const client = new Client({ host: `http://127.0.0.1:${port}`, username: 'u', password: 'p' });
    const call = (method, ...parameters) => client.command(method, ...parameters);
    for (let tries = 0; ; tries++) {
      try { assert.equal((await call('getblockchaininfo')).chain, chain); break; } catch (error) {
        if (tries > 200 || node.exitCode !== null) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
    await act(call);
    await call('stop');
    await once(node, 'exit');
    assert.equal(node.exitCode, 0);
  } finally {
    if (end()) await once(node, 'exit'); // it still writes into the folder
    process.off('exit', end);
    rmSync(folder, { recursive: true, force: true });
  }
}

const { good, bad } = read('addresses.json');
const chains = { mainnet: 'main', testnet: 'test', regtest: 'regtest' };
const stricter = []; // what Core takes and a custodian must not
for (const [network, chain] of Object.entries(chains)) {
  await beside(chain, async (call) => {
    for (const { input, networks, script } of good) {
      const said = await call('validateaddress', input);
      assert.equal(said.isvalid, networks.includes(network), `${input} on ${network}`);
      if (said.isvalid) assert.equal(said.scriptPubKey, script, input);
    }
    for (const { input, why } of bad) {
      const said = await call('validateaddress', input);
      if (said.isvalid) {
        assert.match(why, /anybody can spend it|not taproot|not a point|a space before|a line end behind/, `${input} on ${network}: Core takes it (${why})`);
        stricter.push(`${network} ${input}: ${why}`);
      }
    }
    if (network !== 'regtest') return;
    for (const one of read('transactions.json')) {
      const plain = await call('decodepsbt', one.unsigned_psbt);
      assert.equal(plain.tx.txid, one.txid, one.name);
      if (one.refuse) continue;
      // It says complete only when every script and signature holds.
      const { hex, complete } = await call('finalizepsbt', one.signed_psbt);
      assert.deepEqual([complete, hex], [true, one.signed], one.name);
      const { txid, hash, vsize, weight } = await call('decoderawtransaction', one.signed);
      assert.deepEqual([txid, hash, vsize, weight], [one.txid, one.wtxid, one.vsize, one.weight], one.name);
      assert.equal(Math.round(Number(plain.fee) * 1e8), Number(one.fee), one.name);
    }
  });
}
console.error(`Bitcoin Core agrees; it also takes, and we refuse:\n  ${stricter.join('\n  ')}`);
