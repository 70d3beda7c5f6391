// Makes vectors.json, refused.json and addresses.json with ethers, offline.
//
//   tests/tools/node.sh crates/tx/tests/vectors/evm/make.mjs [--check]
import { golden, seeded, tool } from '../../../../../tests/tools/golden.mjs';

const ethers = tool('ethers');
const { Transaction, SigningKey, computeAddress, getAddress, hexlify, concat, keccak256, encodeRlp, decodeRlp, toBeHex } = ethers;
const address = (...words) => computeAddress(hexlify(seeded('evm', ...words)));
const erc20 = new ethers.Interface(['function transfer(address,uint256)', 'function approve(address,uint256)', 'function transferFrom(address,address,uint256)']);
const most = 2n ** 256n - 1n;
const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

let count = 0;

// One signed transaction and everything that a signer computes on the way.
function sign(name, kind, fields, more = {}) {
  const key = new SigningKey(hexlify(seeded('evm', 'key', count++ % 7)));
  const transaction = Transaction.from(fields);
  const unsigned = transaction.unsignedSerialized;
  const sighash = transaction.unsignedHash;
  transaction.signature = key.sign(sighash);
  const { r, s, yParity } = transaction.signature;
  return {
    name, kind, private_key: key.privateKey, from: transaction.from,
    type: transaction.type, chain_id: String(transaction.chainId), nonce: String(transaction.nonce), gas_limit: String(transaction.gasLimit),
    ...(transaction.type < 2
      ? { gas_price: String(transaction.gasPrice) }
      : { max_fee_per_gas: String(transaction.maxFeePerGas), max_priority_fee_per_gas: String(transaction.maxPriorityFeePerGas) }),
    to: transaction.to, value: String(transaction.value), data: transaction.data, ...more,
    unsigned, sighash, r, s, y_parity: yParity, signed: transaction.serialized, hash: transaction.hash,
  };
}

const gwei = 10n ** 9n;
const legacy = (chainId, fields) => ({ type: 0, chainId, nonce: 0, gasLimit: 21_000n, gasPrice: 5n * gwei, ...fields });
const fee1559 = (chainId, fields) => ({ type: 2, chainId, nonce: 0, gasLimit: 21_000n, maxFeePerGas: 60n * gwei, maxPriorityFeePerGas: gwei, ...fields });
const listed = (chainId, fields) => ({ ...legacy(chainId, fields), type: 1, accessList: [] });
const shapes = { legacy, 'EIP-1559': fee1559, 'EIP-2930': listed };
const cases = [];
const native = (name, shape, chain, to, value, more = {}) =>
  cases.push(sign(`${shape}, chain ${chain}, native: ${name}`, 'native', shapes[shape](chain, { to, value, ...more }), { recipient: to, amount: String(value) }));
const token = (name, shape, chain, contract, to, amount, more = {}) =>
  cases.push(sign(`${shape}, chain ${chain}, ERC-20: ${name}`, 'erc20',
    shapes[shape](chain, { to: contract, value: 0n, gasLimit: 65_000n, data: erc20.encodeFunctionData('transfer', [to, amount]), ...more }),
    { token: contract, recipient: to, amount: String(amount) }));

const USDT = { 1: getAddress('0xdac17f958d2ee523a2206206994597c13d831ec7'), 56: getAddress('0x55d398326f99059ff775485246999027b3197955'), 31337: address('token') };
for (const shape of Object.keys(shapes)) {
  for (const chain of [1, 56, 31337]) {
    for (const value of [0n, 1n, 10n ** 18n, 2n ** 64n, most]) native(`${value} wei`, shape, chain, address('to', chain, value), value);
    for (const amount of [0n, 1n, 25_000_000n, 10n ** 18n, most]) token(String(amount), shape, chain, USDT[chain], address('to', chain, amount), amount);
  }
  for (const nonce of [1, 127, 128, 255, 256, 65_535, 2 ** 32, Number.MAX_SAFE_INTEGER]) native(`nonce ${nonce}`, shape, 56, address('nonce'), 10n ** 17n, { nonce });
  native('the highest gas limit', shape, 56, address('gas'), 1n, { gasLimit: 2n ** 64n - 1n });
  native('to a zero byte in front', shape, 56, getAddress(`0x00${address('zero').slice(4).toLowerCase()}`), 1n);
  native('a chain id of 32 bits', shape, 2 ** 32 - 1, address('chain'), 1n);
  token('nonce 300', shape, 31337, USDT[31337], address('nonce'), 5_000_000n, { nonce: 300 });
}
native('gas price 0', 'legacy', 31337, address('free'), 1n, { gasPrice: 0n });
native('the highest gas price of 128 bits', 'legacy', 31337, address('dear'), 1n, { gasPrice: 2n ** 128n - 1n });
native('no priority fee', 'EIP-1559', 1, address('free'), 1n, { maxPriorityFeePerGas: 0n });
native('priority fee equal to the whole', 'EIP-1559', 1, address('dear'), 1n, { maxFeePerGas: 7n * gwei, maxPriorityFeePerGas: 7n * gwei });
for (let index = 0; index < 12; index++) {
  const shape = index % 2 ? 'legacy' : 'EIP-1559';
  native(`typical ${index}`, shape, 56, address('typical', index), BigInt(hexlify(seeded('evm', 'wei', index).subarray(0, 8))), { nonce: index * 37 });
  token(`typical ${index}`, shape, 56, USDT[56], address('typical', index), BigInt(hexlify(seeded('evm', 'units', index).subarray(0, 9))), { nonce: index * 41 });
}
golden(import.meta.url, 'vectors.json', cases);

// What is no plain transfer, each with the reason why a careful signer must not sign it as one.
const to = address('to', 'refused');
const transfer = erc20.encodeFunctionData('transfer', [to, 5_000_000n]);
const call = { to: USDT[56], gasLimit: 65_000n };
const accessList = [{ address: USDT[56], storageKeys: [toBeHex(1, 32)] }];
const refused = [];
const refuse = (name, why, fields) => refused.push(sign(name, 'refused', fields, { refuse: why }));
refuse('no EIP-155', 'valid on every chain: it can be replayed', legacy(0, { to, value: 1n }));
refuse('EIP-1559 for chain 0', 'no chain has the id 0', fee1559(0, { to, value: 1n }));
refuse('contract creation, legacy', 'no recipient: it deploys code', legacy(56, { to: null, value: 0n, gasLimit: 100_000n, data: '0x6000' }));
refuse('contract creation, EIP-1559', 'no recipient: it deploys code', fee1559(56, { to: null, value: 0n, gasLimit: 100_000n, data: '0x6000' }));
refuse('contract creation, EIP-2930', 'no recipient: it deploys code', listed(56, { to: null, value: 0n, gasLimit: 100_000n, data: '0x6000' }));
refuse('native with data, EIP-2930', 'data on a native transfer calls whatever code is there', listed(56, { to, value: 1n, data: '0x01' }));
refuse('contract creation that pays and has no code', 'no recipient: the coin is lost', legacy(56, { to: null, value: 10n ** 18n }));
refuse('native with data, legacy', 'data on a native transfer calls whatever code is there', legacy(56, { to, value: 1n, data: '0x01' }));
refuse('native with data, EIP-1559', 'data on a native transfer calls whatever code is there', fee1559(56, { to, value: 1n, data: '0x01' }));
refuse('native with the data of a token transfer', 'moves coin and perhaps token', legacy(56, { to: USDT[56], value: 1n, data: transfer, gasLimit: 65_000n }));
refuse('approve', 'lets somebody else take the money later', legacy(56, { ...call, data: erc20.encodeFunctionData('approve', [to, most]) }));
refuse('transferFrom', 'moves what somebody else owns', legacy(56, { ...call, data: erc20.encodeFunctionData('transferFrom', [address('from'), to, 1n]) }));
refuse('transfer with a byte too many', 'call data longer than 68 bytes', legacy(56, { ...call, data: `${transfer}00` }));
refuse('transfer with a byte missing', 'call data shorter than 68 bytes: the amount is padded into another one', legacy(56, { ...call, data: transfer.slice(0, -2) }));
refuse('transfer with a dirty recipient', 'the upper 12 bytes of the address are not zero', legacy(56, { ...call, data: `${transfer.slice(0, 10)}01${transfer.slice(12)}` }));
refuse('selector alone', 'no arguments', legacy(56, { ...call, data: transfer.slice(0, 10) }));
refuse('access list, EIP-1559', 'an access list is no part of a plain transfer', fee1559(56, { ...call, data: transfer, accessList }));
refuse('EIP-2930 with access list', 'an access list is no part of a plain transfer', { type: 1, chainId: 56, nonce: 0, gasPrice: gwei, ...call, data: transfer, accessList });
refuse('EIP-4844', 'type 3 carries blobs', { ...fee1559(1, { to, value: 1n }), type: 3, maxFeePerBlobGas: gwei, blobVersionedHashes: [`0x01${'ab'.repeat(31)}`] });
const authority = new SigningKey(hexlify(seeded('evm', 'authority')));
const permission = { chainId: 1n, address: to, nonce: 0n };
refuse('EIP-7702', 'type 4 lets a contract act as the account', { ...fee1559(1, { to, value: 1n, gasLimit: 100_000n }), type: 4,
  authorizationList: [{ ...permission, signature: authority.sign(ethers.hashAuthorization(permission)) }] });

// Bytes that nobody should read as a transaction, made from good ones; and the other half of a signature.
const plain = sign('plain', 'native', legacy(56, { to, value: 1n, nonce: 1 }));
const fields = decodeRlp(plain.signed);
const alter = (index, value) => encodeRlp(fields.map((field, at) => (at === index ? value : field)));
const high = toBeHex(order - BigInt(fields[8]), 32);
const broken = [
  ['high S', 'a second signature for the same transaction: another hash (EIP-2)', encodeRlp([...fields.slice(0, 6), toBeHex(BigInt(fields[6]) % 2n ? BigInt(fields[6]) + 1n : BigInt(fields[6]) - 1n), fields[7], high])],
  ['truncated', 'a byte is missing', plain.signed.slice(0, -2)],
  ['a byte behind', 'a byte too many', `${plain.signed}00`],
  ['a leading zero in the nonce', 'not canonical: another hash for the same meaning', alter(0, '0x0001')],
  ['recipient of 19 bytes', 'not an address', alter(3, fields[3].slice(0, -2))],
  ['recipient of 21 bytes', 'not an address', alter(3, `${fields[3]}00`)],
  ['value of 33 bytes', 'more than 256 bits', alter(4, `0x01${'00'.repeat(32)}`)],
  ['r is zero', 'not a signature', alter(7, '0x')],
  ['unknown type 5', 'no such type', `0x05${plain.signed.slice(2)}`],
  ['empty', 'nothing', '0x'],
].map(([name, why, signed]) => {
  let says;
  try { const read = Transaction.from(signed); says = `from ${read.from}`; } catch (error) { says = `refuses: ${error.shortMessage ?? error.message}`; }
  return { name, kind: 'broken', refuse: why, signed, hash: keccak256(signed), ethers: says };
});
if (broken[0].ethers !== `from ${plain.from}`) throw new Error('the high S is not a signature of the same key');
golden(import.meta.url, 'refused.json', { transactions: refused, broken });

// Addresses. `valid` is what Bursar should say, `address` the checksummed form (EIP-55); ethers' own word beside it.
const addresses = [];
function judge(input, valid, why) {
  let checksummed = null;
  try { checksummed = getAddress(input); } catch { /* ethers refuses by throwing */ }
  addresses.push({ input, valid, ...(valid && { address: checksummed }), why, ethers_is_address: ethers.isAddress(input), ethers_get_address: checksummed });
}
const eip55 = ['0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed', '0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359', '0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB', '0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb'];
for (const input of eip55) judge(input, true, 'checksummed, from EIP-55');
for (let index = 0; index < 8; index++) judge(address('address', index), true, 'checksummed');
const good = eip55[0];
judge('0x52908400098527886E0F7030069857D2E4169EE7', true, 'checksummed, all its letters are capitals');
judge('0xde709f2102306220921060314715629080e2fb77', true, 'checksummed, all its letters are small');
judge(good.toLowerCase(), true, 'small letters: no checksum to check');
judge(`0x${good.slice(2).toUpperCase()}`, true, 'capitals: no checksum to check');
judge(`0x${'0'.repeat(40)}`, true, 'the zero address: well-formed; whoever pays to it burns');
const flip = (text, at) => text.slice(0, at) + (text[at] === text[at].toLowerCase() ? text[at].toUpperCase() : text[at].toLowerCase()) + text.slice(at + 1);
const letter = [...good].findIndex((one, at) => at > 1 && /[a-f]/i.test(one));
judge(flip(good, letter), false, 'one letter in the wrong case');
judge(`0x${[...good.slice(2)].map((one) => flip(one, 0)).join('')}`, false, 'every letter in the wrong case');
judge(good.slice(0, 39) + (good[39] === '1' ? '2' : '1') + good.slice(40), false, 'a digit changed: the case is that of another address');
judge(good.slice(2), false, 'no 0x: ethers takes it; it could be hex of anything');
judge(`0X${good.slice(2)}`, false, '0X');
judge(`0X${good.slice(2).toUpperCase()}`, false, '0X and capitals');
judge(good.slice(0, -1), false, 'a digit missing');
judge(`${good}0`, false, 'a digit too many');
judge(`${good.slice(0, -1)}g`, false, 'g is no digit');
judge(` ${good}`, false, 'a space before');
judge(`${good}\n`, false, 'a line end behind');
judge(`0x${'0'.repeat(24)}${good.slice(2)}`, false, 'a word of 32 bytes');
judge(ethers.getIcapAddress(good), false, 'ICAP: ethers takes it, hardly anybody else');
judge('vitalik.eth', false, 'a name');
judge('TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t', false, 'a TRON address');
judge('41a614f803b6fd780986a42c78ec9c7f77e6ded13c', false, 'a TRON address in hex');
judge('0x', false, 'nothing behind 0x');
judge('', false, 'empty');
golden(import.meta.url, 'addresses.json', addresses);
