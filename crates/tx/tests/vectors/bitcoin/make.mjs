// Makes addresses.json and transactions.json with bitcoinjs-lib, offline.
//
//   tests/tools/node.sh crates/tx/tests/vectors/bitcoin/make.mjs [--check]
import { golden, seeded, tool } from '../../../../../tests/tools/golden.mjs';

const bitcoin = tool('bitcoinjs-lib');
const ecc = tool('@bitcoinerlab/secp256k1');
const { bech32, bech32m } = tool('bech32');
const bs58check = tool('bs58check').default ?? tool('bs58check');
// Zeros where BIP 340 wants randomness, or every run would sign otherwise; libsecp256k1 without it signs the same.
const ECPair = tool('ecpair').ECPairFactory({ ...ecc, signSchnorr: (hash, secret, random = new Uint8Array(32)) => ecc.signSchnorr(hash, secret, random) });
bitcoin.initEccLib(ecc);
console.warn = () => {}; // bitcoinjs-lib warns of witness versions to come; that it takes them is written down below

const { payments } = bitcoin;
const networks = { mainnet: bitcoin.networks.bitcoin, testnet: bitcoin.networks.testnet, regtest: bitcoin.networks.regtest };
const hex = (bytes) => Buffer.from(bytes).toString('hex');
const bytes = (text) => Uint8Array.from(Buffer.from(text, 'hex'));
const key = (network, ...words) => ECPair.fromPrivateKey(Uint8Array.from(seeded('bitcoin', ...words)), { network });
const xonly = (pair) => pair.publicKey.slice(1);

const types = {
  p2pkh: (pair, network) => payments.p2pkh({ pubkey: pair.publicKey, network }),
  p2sh: (pair, network) => payments.p2sh({ redeem: payments.p2wpkh({ pubkey: pair.publicKey, network }), network }),
  p2wpkh: (pair, network) => payments.p2wpkh({ pubkey: pair.publicKey, network }),
  p2wsh: (pair, network) => payments.p2wsh({ redeem: payments.p2ms({ m: 1, pubkeys: [pair.publicKey], network }), network }),
  p2tr: (pair, network) => payments.p2tr({ internalPubkey: xonly(pair), network }),
};

// What bitcoinjs-lib makes of an address: the networks that take it, each with the script.
function accepted(input) {
  const scripts = {};
  for (const [name, network] of Object.entries(networks)) {
    try { scripts[name] = hex(bitcoin.address.toOutputScript(input, network)); } catch { /* it refuses by throwing */ }
  }
  return scripts;
}

// Base58 has no letter for regtest: testnet's addresses are regtest's too. `networks` lists all that must take it.
const good = [];
for (const [name, network] of Object.entries(networks)) {
  for (const [type, pay] of Object.entries(types)) {
    for (let index = 0; index < 3; index++) {
      const { address, output } = pay(key(network, type, index), network);
      if (good.some(({ input }) => input === address)) continue;
      const scripts = accepted(address);
      if (scripts[name] !== hex(output)) throw new Error(`${address}: two scripts`);
      good.push({ input: address, type, networks: Object.keys(scripts), script: hex(output) });
      if (index === 0 && /^(bc|tb|bcrt)1/.test(address))
        good.push({ input: address.toUpperCase(), type, networks: Object.keys(accepted(address.toUpperCase())), script: hex(output), why: 'capitals throughout, as in a QR code' });
    }
  }
}

// bitcoinjs-lib compares the prefix as it stands and so refuses capitals, which BIP 173 allows: ours are the small ones'.
for (const one of good) if (one.why) one.networks = good.find((other) => other.input === one.input.toLowerCase()).networks;

const bad = [];
const judge = (input, why) => bad.push({ input, why, bitcoinjs: accepted(input) });
const pair = key(networks.mainnet, 'bad');
const address = Object.fromEntries(Object.entries(types).map(([type, pay]) => [type, pay(pair, networks.mainnet).address]));
const program = (length, ...words) => Uint8Array.from(Buffer.concat([seeded('program', ...words), seeded('more', ...words)]).subarray(0, length));
const segwit = (codec, prefix, version, data) => codec.encode(prefix, [version, ...codec.toWords(data)]);
const other = (text, at, by = 'q') => text.slice(0, at) + (text[at] === by ? 'p' : by) + text.slice(at + 1);
for (const [type, text] of Object.entries(address)) {
  judge(other(text, text.length - 1), `${type}: last character changed`);
  judge(other(text, 12), `${type}: a character in the middle changed`);
  judge(text.slice(0, -1), `${type}: last character missing`);
  judge(`${text}q`, `${type}: a character too many`);
  judge(` ${text}`, `${type}: a space before`);
  judge(`${text}\n`, `${type}: a line end behind`);
}
for (const type of ['p2wpkh', 'p2wsh', 'p2tr']) judge(address[type].slice(0, 20) + address[type].slice(20).toUpperCase(), `${type}: mixed case`);
judge(`BC1${address.p2wpkh.slice(3)}`, 'p2wpkh: prefix in capitals, the rest small');
judge(address.p2pkh.toLowerCase(), 'p2pkh: small letters');
judge(address.p2pkh.toUpperCase(), 'p2pkh: capitals');
for (const prefix of ['bc', 'tb', 'bcrt']) {
  judge(segwit(bech32m, prefix, 0, program(20)), 'version 0 with the checksum of bech32m');
  judge(segwit(bech32m, prefix, 0, program(32)), 'version 0 with the checksum of bech32m');
  judge(segwit(bech32, prefix, 1, program(32)), 'version 1 with the checksum of bech32');
  for (const version of [2, 15, 16]) judge(segwit(bech32m, prefix, version, program(32)), `witness version ${version}: anybody can spend it today`);
}
judge(segwit(bech32m, 'bc', 17, program(32)), 'witness version 17: there is none');
judge(segwit(bech32m, 'bc', 31, program(32)), 'witness version 31: there is none');
for (const length of [2, 16, 19, 21, 31, 33, 40]) judge(segwit(bech32, 'bc', 0, program(length)), `version 0 with a program of ${length} bytes`);
for (const length of [1, 2, 20, 31, 33, 40, 41]) judge(segwit(bech32m, 'bc', 1, program(length)), `version 1 with a program of ${length} bytes: not taproot`);
judge(segwit(bech32m, 'bc', 1, bytes('4e73')), 'pay to anchor: anybody can spend it');
// A taproot key that is no x of the curve: the script is standard and nobody can ever spend it.
judge(segwit(bech32m, 'bc', 1, new Uint8Array(32).fill(0xff)), 'version 1, but not a point of the curve');
judge(bech32.encode('bc', []), 'prefix and checksum, no version');
judge(bech32.encode('bc', [0, ...Array(32).fill(0), 1]), 'version 0 with padding that is not zero');
judge(segwit(bech32, 'ltc', 0, program(20)), 'Litecoin');
judge(segwit(bech32, 'bcr', 0, program(20)), 'an unknown prefix');
const base58 = (version, data) => bs58check.encode(Uint8Array.from([version, ...data]));
judge(base58(0x00, program(19)), 'version 0, 19 bytes, checksum right');
judge(base58(0x00, program(21)), 'version 0, 21 bytes, checksum right');
judge(base58(0x00, program(32)), 'version 0, 32 bytes, checksum right');
judge(base58(0x30, program(20)), 'Litecoin, version 48');
judge(base58(0x41, program(20)), 'TRON, version 65');
judge(base58(0x1e, program(20)), 'Dogecoin, version 30');
judge(pair.toWIF(), 'a private key: whoever logs the refusal must not log this');
judge('0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed', 'an EVM address');
judge(`bitcoin:${address.p2wpkh}`, 'a URI');
judge(hex(bitcoin.address.toOutputScript(address.p2wpkh)), 'a script');
judge('', 'empty');
golden(import.meta.url, 'addresses.json', { good, bad });

// Transactions: the PSBT as it goes to the signer, as it comes back, and what is broadcast.
const network = networks.regtest;
const transactions = [];
function spend(name, inputs, outputs, more = {}) {
  const psbt = new bitcoin.Psbt({ network });
  psbt.setVersion(2);
  psbt.setLocktime(more.locktime ?? 0);
  const signers = [];
  const spent = inputs.map(([type, amount], index) => {
    const signer = key(network, name, 'input', index);
    const { output, address } = types[type](signer, network);
    const funding = seeded('bitcoin', name, 'txid', index).toString('hex');
    const vout = index * 3;
    psbt.addInput({
      hash: funding, index: vout, sequence: more.sequence ?? 0xfffffffd,
      witnessUtxo: { script: output, value: BigInt(amount) },
      ...(type === 'p2tr' && { tapInternalKey: xonly(signer) }),
      ...(more.sighash && { sighashType: more.sighash }),
    });
    signers.push(type === 'p2tr' ? signer.tweak(bitcoin.crypto.taggedHash('TapTweak', xonly(signer))) : signer);
    return { txid: funding, vout, type, amount: String(amount), address, script: hex(output), sequence: more.sequence ?? 0xfffffffd, private_key: hex(signer.privateKey) };
  });
  const paid = outputs.map(([to, amount]) => {
    const script = to instanceof Uint8Array ? to : bitcoin.address.toOutputScript(to, network);
    psbt.addOutput({ script, value: BigInt(amount) });
    return { address: to instanceof Uint8Array ? null : to, script: hex(script), amount: String(amount) };
  });
  const unsigned_psbt = psbt.toBase64();
  const txid = bitcoin.Transaction.fromBuffer(psbt.data.globalMap.unsignedTx.toBuffer()).getId();
  if (more.refuse) {
    transactions.push({ name, network: 'regtest', refuse: more.refuse, inputs: spent, outputs: paid, txid, unsigned_psbt });
    return;
  }
  signers.forEach((signer, index) => psbt.signInput(index, signer));
  const holds = (pubkey, hash, signature) =>
    pubkey.length === 32 ? ecc.verifySchnorr(hash, pubkey, signature) : ECPair.fromPublicKey(pubkey).verify(hash, signature);
  if (!psbt.validateSignaturesOfAllInputs(holds)) throw new Error(`${name}: a signature does not hold`);
  const signed_psbt = psbt.toBase64();
  psbt.finalizeAllInputs();
  const final = psbt.extractTransaction(true); // true: the fee may be absurd
  if (final.getId() !== txid) throw new Error(`${name}: signing changed the id`);
  const sum = (list) => list.reduce((total, { amount }) => total + BigInt(amount), 0n);
  transactions.push({
    name, network: 'regtest', locktime: final.locktime, inputs: spent, outputs: paid, fee: String(sum(spent) - sum(paid)),
    txid, wtxid: hex(final.getHash(true).slice().reverse()), vsize: final.virtualSize(), weight: final.weight(),
    unsigned_psbt, signed_psbt, final_psbt: psbt.toBase64(), signed: final.toHex(),
  });
}
const pay = (type, ...words) => types[type](key(network, 'pay', type, ...words), network).address;
const note = (text) => payments.embed({ data: [Uint8Array.from(Buffer.from(text))] }).output;

spend('one P2WPKH to one', [['p2wpkh', 100_000]], [[pay('p2wpkh'), 99_000]]);
spend('one P2TR to one', [['p2tr', 100_000]], [[pay('p2tr'), 99_000]]);
spend('P2WPKH with change', [['p2wpkh', 5_000_000]], [[pay('p2wpkh', 1), 1_250_000], [pay('p2tr', 1), 3_749_000]]);
spend('to every type', [['p2wpkh', 10_000_000]], Object.keys(types).map((type, index) => [pay(type, 2), 1_000_000 + index]));
spend('P2WPKH and P2TR together', [['p2wpkh', 70_000], ['p2tr', 80_000], ['p2wpkh', 90_000]], [[pay('p2wpkh', 3), 150_000], [pay('p2tr', 3), 87_654]]);
spend('with OP_RETURN', [['p2wpkh', 50_000]], [[pay('p2wpkh', 4), 48_000], [note('bursar 4711'), 0]]);
spend('with OP_RETURN of 80 bytes, from P2TR', [['p2tr', 50_000]], [[note('x'.repeat(80)), 0], [pay('p2sh', 4), 48_000]]);
spend('final, not replaceable', [['p2wpkh', 60_000]], [[pay('p2pkh', 5), 59_000]], { sequence: 0xffffffff });
spend('with a lock time', [['p2tr', 60_000]], [[pay('p2wsh', 5), 59_000]], { locktime: 840_000, sequence: 0xfffffffe });
spend('all the coins there are', [['p2wpkh', 2_100_000_000_000_000]], [[pay('p2wpkh', 6), 2_099_999_999_999_000]]);
spend('dust and one more', [['p2wpkh', 10_000]], [[pay('p2wpkh', 7), 294], [pay('p2tr', 7), 330], [pay('p2pkh', 7), 546]]);
spend('no fee', [['p2wpkh', 10_000]], [[pay('p2wpkh', 8), 10_000]]);
spend('twelve inputs', Array.from({ length: 12 }, (_, index) => [index % 2 ? 'p2tr' : 'p2wpkh', 10_000 + index]), [[pay('p2wpkh', 9), 110_000]]);
spend('forty outputs', [['p2tr', 10_000_000]], Array.from({ length: 40 }, (_, index) => [pay('p2wpkh', 10, index), 200_000 + index]));
spend('the same recipient twice', [['p2wpkh', 30_000]], [[pay('p2wpkh', 11), 10_000], [pay('p2wpkh', 11), 19_000]]);

// What a careful signer must not sign.
const { SIGHASH_NONE, SIGHASH_SINGLE, SIGHASH_ALL, SIGHASH_ANYONECANPAY } = bitcoin.Transaction;
spend('sighash NONE', [['p2wpkh', 30_000]], [[pay('p2wpkh', 12), 29_000]], { sighash: SIGHASH_NONE, refuse: 'the signature would hold for any outputs' });
spend('sighash SINGLE', [['p2wpkh', 30_000]], [[pay('p2wpkh', 12), 9_000], [pay('p2wpkh', 13), 20_000]], { sighash: SIGHASH_SINGLE, refuse: 'the signature would hold for other outputs besides its own' });
spend('sighash ALL|ANYONECANPAY', [['p2wpkh', 30_000]], [[pay('p2wpkh', 12), 29_000]], { sighash: SIGHASH_ALL | SIGHASH_ANYONECANPAY, refuse: 'others could add inputs' });
spend('more out than in', [['p2wpkh', 30_000]], [[pay('p2wpkh', 12), 30_001]], { refuse: 'the outputs are more than the inputs' });
spend('most of it is fee', [['p2wpkh', 100_000_000]], [[pay('p2wpkh', 12), 1_000]], { refuse: 'the fee is absurd' });
spend('a script that is none of ours', [['p2wpkh', 30_000]], [[bytes('51'), 29_000]], { refuse: 'the output has no address: anybody can spend OP_TRUE' });
spend('OP_RETURN that burns', [['p2wpkh', 30_000]], [[note('burn'), 29_000]], { refuse: 'an OP_RETURN output destroys what it is given' });
golden(import.meta.url, 'transactions.json', transactions);
