// Prints cases, a line of JSON each: keys derived, and payments built and signed, by ethers, tronweb and bitcoinjs-lib. Nothing of
// Bursar has a part in it. Usage: BURSAR_TEST_NODE_MODULES=… node keys.mjs COUNT SEED
import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.BURSAR_TEST_NODE_MODULES}/`);
const { HDNodeWallet, Mnemonic, Transaction, getAddress } = require('ethers');
const { TronWeb } = require('tronweb');
const { HDKey } = require('@scure/bip32');
const bitcoin = require('bitcoinjs-lib');
const ecc = require('@bitcoinerlab/secp256k1');
const { ECPairFactory } = require('ecpair');
const ECPair = ECPairFactory(ecc);

const [count, seed] = process.argv.slice(2).map(Number);
const bytes = (...words) => createHash('sha256').update(`${seed} ${words.join(' ')}`).digest();
const number = (...words) => bytes(...words).readUIntBE(0, 5);
const hex = (data) => Buffer.from(data).toString('hex');

// Ordinary users, those around the end of a level, and the largest.
function user(...words) {
  const any = 1n + BigInt(number('user', ...words) % 1_000_000);
  switch (number('kind of user', ...words) % 6) {
    case 0: return 2n ** 31n - 1n;
    case 1: return 2n ** 31n;
    case 2: return 2n ** 31n + any;
    case 3: return 2n ** 62n - any;
    default: return any;
  }
}
const below = (user) => `${user >> 31n}/${user & 0x7fffffffn}`;

async function evm(n, mnemonic, account) {
  const owner = user(n);
  const wallet = HDNodeWallet.fromMnemonic(mnemonic, `m/44'/60'/${account}'`);
  const key = wallet.derivePath(below(owner));
  const token = n % 2 === 0;
  const to = getAddress(`0x${hex(bytes('to', n).subarray(0, 20))}`);
  const amount = BigInt(number('amount', n)) ** 2n + 1n;
  const chainId = [1, 56, 31337, 2 ** 40][n % 4];
  const fee = n % 3 === 0
    ? { type: 0, gasPrice: number('price', n) }
    : { type: 2, maxFeePerGas: number('price', n) + 7, maxPriorityFeePerGas: number('price', n) };
  const call = `0xa9059cbb${'0'.repeat(24)}${to.slice(2).toLowerCase()}${amount.toString(16).padStart(64, '0')}`;
  const transaction = Transaction.from({
    ...fee, chainId, nonce: number('nonce', n) % 100_000, gasLimit: 21_000 + number('gas', n) % 100_000,
    ...(token ? { to: getAddress(`0x${hex(bytes('token', n).subarray(0, 20))}`), data: call } : { to, value: amount }),
  });
  const payload = transaction.unsignedSerialized.slice(2);
  const signed = await key.signTransaction(transaction);
  return {
    chain: 'evm', users: [owner.toString()], chain_id: chainId, xpub: wallet.neuter().extendedKey, addresses: [key.address],
    payload, signed: signed.slice(2), hash: Transaction.from(signed).hash.slice(2),
  };
}

const web = new TronWeb({ fullHost: 'http://127.0.0.1:1' }); // nobody listens there: whatever asks a node must fail

async function tron(n, mnemonic, account) {
  const owner = user(n);
  const path = `m/44'/195'/${account}'`;
  const xpub = HDNodeWallet.fromMnemonic(mnemonic, path).neuter().extendedKey;
  const { address, privateKey } = TronWeb.fromMnemonic(mnemonic.phrase, `${path}/${below(owner)}`);
  const to = TronWeb.address.fromHex(`41${hex(bytes('to', n).subarray(0, 20))}`);
  const timestamp = 1_700_000_000_000 + n * 3_000;
  const blockHeader = {
    ref_block_bytes: hex(bytes('block', n).subarray(0, 2)), ref_block_hash: hex(bytes('block', n).subarray(8, 16)),
    expiration: timestamp + 60_000, timestamp,
  };
  const amount = 1 + number('amount', n);
  const transaction = n % 2 === 0
    ? await web.transactionBuilder.sendTrx(to, amount, address, { blockHeader })
    : (await web.transactionBuilder.triggerSmartContract('TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t', 'transfer(address,uint256)',
        { txLocal: true, blockHeader, feeLimit: 1 + number('fee', n) % 15_000_000_000 },
        [{ type: 'address', value: to }, { type: 'uint256', value: String(amount) }], address)).transaction;
  const { signature } = await web.trx.sign(transaction, privateKey.replace(/^0x/, ''));
  const { Transaction: Proto } = globalThis.TronWebProto;
  const whole = new Proto();
  const raw = (text) => Uint8Array.from(Buffer.from(text.replace(/^0x/, ''), 'hex'));
  whole.setRawData(Proto.raw.deserializeBinary(raw(transaction.raw_data_hex)));
  whole.addSignature(raw(signature[0]));
  return {
    chain: 'tron', users: [owner.toString()], xpub, addresses: [address], payload: transaction.raw_data_hex,
    signed: hex(whole.serializeBinary()), hash: transaction.txID,
  };
}

const networks = { 'bitcoin': bitcoin.networks.bitcoin, 'bitcoin-testnet': bitcoin.networks.testnet, 'bitcoin-regtest': bitcoin.networks.regtest };

async function btc(n, mnemonic, account) {
  const chain = Object.keys(networks)[n % 3];
  const network = networks[chain];
  const versions = chain === 'bitcoin' ? undefined : { private: 0x04358394, public: 0x043587cf };
  const master = HDKey.fromMasterSeed(Buffer.from(mnemonic.computeSeed().slice(2), 'hex'), versions);
  const top = master.derive(`m/84'/${chain === 'bitcoin' ? 0 : 1}'/${account}'`);
  const users = Array.from({ length: 1 + n % 3 }, (_, at) => user(n, at));
  const pairs = users.map((user) => ECPair.fromPrivateKey(top.derive(`m/${below(user)}`).privateKey, { network }));
  const outs = pairs.map((pair) => bitcoin.payments.p2wpkh({ pubkey: pair.publicKey, network }));
  const psbt = new bitcoin.Psbt({ network });
  let held = 0;
  outs.forEach(({ output }, at) => {
    const value = 50_000 + number('value', n, at) % 1_000_000;
    held += value;
    psbt.addInput({ hash: hex(bytes('previous', n, at)), index: at, sequence: 0xfffffffd, witnessUtxo: { script: output, value: BigInt(value) } });
  });
  const payee = ECPair.fromPrivateKey(Uint8Array.from(bytes('payee', n)), { network });
  const { output } = bitcoin.payments.p2wpkh({ pubkey: payee.publicKey, network });
  psbt.addOutput({ script: output, value: BigInt(held - 20_000) });
  psbt.addOutput({ script: outs[0].output, value: 15_000n });
  psbt.setLocktime(number('height', n) % 900_000);
  const payload = psbt.toHex();
  pairs.forEach((pair, at) => psbt.signInput(at, pair));
  psbt.finalizeAllInputs();
  const final = psbt.extractTransaction();
  return {
    chain, users: users.map(String), xpub: top.publicExtendedKey, addresses: outs.map(({ address }) => address), payload,
    signed: final.toHex(), hash: final.getId(),
  };
}

for (let n = 0; n < count; n++) {
  const mnemonic = Mnemonic.fromEntropy(bytes('entropy', n).subarray(0, n % 2 ? 16 : 32));
  const account = n % 5 === 0 ? 2 ** 31 - 1 - n : n % 7;
  const made = await [evm, tron, btc][n % 3](Math.floor(n / 3), mnemonic, account);
  console.log(JSON.stringify({ mnemonic: mnemonic.phrase, account, ...made }));
}
