// Makes vectors.json and addresses.json with tronweb, offline.
//
//   tests/tools/node.sh crates/tx/tests/vectors/tron/make.mjs [--check]
//
// make.py beside it makes every transaction a second time with tronpy, and the ones that JavaScript's numbers cannot.
import { golden, seeded, tool } from '../../../../../tests/tools/golden.mjs';

const { TronWeb, utils } = tool('tronweb');
const web = new TronWeb({ fullHost: 'http://127.0.0.1:1' }); // nobody listens there: whatever asks a node must fail
const { Transaction } = globalThis.TronWebProto;
const hex = (address) => TronWeb.address.toHex(address);
const bytes = (text) => Uint8Array.from(Buffer.from(text, 'hex'));
const key = (...words) => seeded('tron', ...words).toString('hex');
const address = (...words) => TronWeb.address.fromPrivateKey(key(...words));

const USDT = 'TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t';
const word = (value) => BigInt(value).toString(16).padStart(64, '0');
const selector = { transfer: 'a9059cbb', transferFrom: '23b872dd', approve: '095ea7b3' };
const bare = (base58) => hex(base58).slice(2);

let count = 0;
const cases = [];

// One case: `build` gets owner and block header, and answers with tronweb's transaction.
async function add(name, kind, fields, build) {
  const index = count++;
  const private_key = key('key', index % 7);
  const owner = TronWeb.address.fromPrivateKey(private_key);
  const block = seeded('tron', 'block', index);
  const timestamp = 1_700_000_000_000 + index * 3_000;
  const header = {
    ref_block_bytes: index === 3 ? '0000' : block.subarray(0, 2).toString('hex'),
    ref_block_hash: block.subarray(8, 16).toString('hex'),
    expiration: timestamp + (index % 5 === 4 ? 86_399_000 : 60_000),
    timestamp,
  };
  let transaction = await build(owner, header);
  if (fields.memo_hex) transaction = await web.transactionBuilder.addUpdateData(transaction, fields.memo_hex, 'hex', { txLocal: true });
  const signed = await web.trx.sign(transaction, private_key);
  const whole = new Transaction();
  whole.setRawData(Transaction.raw.deserializeBinary(bytes(transaction.raw_data_hex)));
  whole.addSignature(bytes(signed.signature[0].replace(/^0x/, '')));
  const signature = signed.signature[0].replace(/^0x/, '').toLowerCase();
  const v = parseInt(signature.slice(128), 16);
  cases.push({
    name, kind, private_key, owner, owner_hex: hex(owner),
    ...(fields.to && { to_hex: hex(fields.to) }), ...(fields.contract && { contract_hex: hex(fields.contract) }),
    fee_limit: '0', permission_id: 0, memo_hex: '', ...fields, ...header,
    raw_data_hex: transaction.raw_data_hex, txid: transaction.txID,
    signature, signature_v01: signature.slice(0, 128) + (v - 27).toString(16).padStart(2, '0'),
    signed_hex: Buffer.from(whole.serializeBinary()).toString('hex'),
  });
}

const trx = (name, to, amount, more = {}) =>
  add(name, 'trx', { to, amount: String(amount), ...more }, (owner, blockHeader) =>
    web.transactionBuilder.sendTrx(to, amount, owner, { blockHeader, permissionId: more.permission_id }));

const call = (name, kind, fields, call_data, { call_value = 0, ...more } = {}) =>
  add(name, kind, { fee_limit: '100000000', ...fields, call_data, call_value: String(call_value), ...more }, async (owner, blockHeader) =>
    (await web.transactionBuilder.triggerSmartContract(fields.contract, undefined,
      { txLocal: true, blockHeader, feeLimit: Number(more.fee_limit ?? 100_000_000), callValue: call_value, permissionId: more.permission_id, input: call_data },
      [], owner)).transaction);

// tronweb itself writes the call: the point of a golden vector.
const trc20 = (name, contract, to, amount, more = {}) =>
  add(name, 'trc20', { contract, to, amount: String(amount), fee_limit: '100000000', call_value: '0', call_data: selector.transfer + word('0x' + bare(to)) + word(amount), ...more }, async (owner, blockHeader) =>
    (await web.transactionBuilder.triggerSmartContract(contract, 'transfer(address,uint256)',
      { txLocal: true, blockHeader, feeLimit: Number(more.fee_limit ?? 100_000_000), permissionId: more.permission_id },
      [{ type: 'address', value: to }, { type: 'uint256', value: String(amount) }], owner)).transaction);

const memo = (text) => ({ memo_hex: Buffer.from(text).toString('hex') });

for (const amount of [1, 2, 127, 128, 16_383, 16_384, 999_999, 1_000_000, 1_500_000, 123_456_789, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 100_000_000_000, 2 ** 53 - 1])
  await trx(`TRX ${amount} sun`, address('to', amount), amount);
for (let index = 0; index < 8; index++)
  await trx(`TRX, typical ${index}`, address('typical', index), 1 + seeded('amount', index).readUIntBE(0, 5));
await trx('TRX with a memo', address('memo'), 5_000_000, memo('invoice 4711'));
await trx('TRX with a memo that is not ASCII', address('memo', 2), 5_000_000, memo('für Jürgen, 謝謝'));
await trx('TRX with a memo of 200 bytes', address('memo', 3), 5_000_000, memo('x'.repeat(200)));
await trx('TRX with a memo of one zero byte', address('memo', 4), 5_000_000, { memo_hex: '00' });
for (const permission_id of [2, 3, 9]) await trx(`TRX by permission ${permission_id}`, address('permission'), 7_000_000, { permission_id });
await trx('TRX by permission 2 with a memo', address('permission'), 7_000_000, { permission_id: 2, ...memo('both') });
await trx('TRX to an account that the transfer itself creates', address('new account'), 100_000);
await trx('TRX to a contract', USDT, 1_000_000);

const most = 2n ** 256n - 1n;
for (const amount of [0n, 1n, 1_000_000n, 12_345_678n, 2n ** 31n, 2n ** 53n - 1n, 2n ** 53n + 1n, 2n ** 63n - 1n, 2n ** 63n, 2n ** 64n - 1n, 2n ** 64n, 2n ** 128n, 2n ** 255n, most - 1n, most])
  await trc20(`TRC-20 ${amount}`, USDT, address('to', amount), amount);
for (let index = 0; index < 6; index++)
  await trc20(`TRC-20, typical ${index}`, index % 2 ? address('token', index) : USDT, address('typical', index), 1n + BigInt(seeded('tokens', index).readUIntBE(0, 5)));
for (const fee_limit of ['1', '1000000', '15000000000', '9007199254740991'])
  await trc20(`TRC-20 with a fee limit of ${fee_limit}`, USDT, address('fee'), 1_000_000n, { fee_limit });
await trc20('TRC-20 with a memo', USDT, address('memo'), 1_000_000n, memo('invoice 4712'));
await trc20('TRC-20 by permission 2', USDT, address('permission'), 1_000_000n, { permission_id: 2 });
await trc20('TRC-20 by permission 2 with a memo', USDT, address('permission'), 1_000_000n, { permission_id: 2, ...memo('both') });

// What is no plain transfer. `refuse` says why a careful signer must not sign it as one.
const to = address('to', 'refused');
const plain = selector.transfer + word('0x' + bare(to)) + word(1_000_000);
const refused = [
  ['approve instead of transfer', selector.approve + plain.slice(8), {}, 'lets somebody else take the money later'],
  ['transferFrom', selector.transferFrom + word('0x' + bare(address('from'))) + plain.slice(8), {}, 'moves what somebody else owns'],
  ['transfer that also pays TRX', plain, { call_value: 1_000_000 }, 'call_value sends TRX besides the token'],
  ['transfer with a byte too many', `${plain}00`, {}, 'call data longer than 68 bytes: something is hidden behind the arguments'],
  ['transfer with a byte missing', plain.slice(0, -2), {}, 'call data shorter than 68 bytes: the amount is padded into another one'],
  ['transfer with 41 before the recipient', `${selector.transfer}${'0'.repeat(22)}${hex(to)}${word(1_000_000)}`, {}, 'the upper 12 bytes of the address are not zero: contracts differ in what they make of it'],
  ['an empty call', '00', {}, 'no known function'],
];
for (const [name, data, more, refuse] of refused)
  await call(name, 'refused', { contract: USDT, refuse }, data, more);
await add('account creation', 'refused', { to, refuse: 'creates an account and pays nobody' }, (owner, blockHeader) =>
  web.transactionBuilder.createAccount(to, owner, { blockHeader }));
await add('TRC-10 transfer', 'refused', { to, amount: '5', refuse: 'moves a TRC-10 token, not TRX', token_id: '1000001' }, (owner, blockHeader) =>
  web.transactionBuilder.sendToken(to, 5, '1000001', owner, { blockHeader }));

for (const one of cases) {
  if (one.call_data !== undefined && !one.raw_data_hex.includes(one.call_data)) throw new Error(`${one.name}: not the call that was meant`);
}
golden(import.meta.url, 'vectors.json', cases);

// Addresses, and what tronweb says of them. `valid` is what Bursar should say where it is stricter, and `why`.
const good = address('address', 1);
const body = hex(good);
const encode = (payload) => utils.crypto.getBase58CheckAddress([...Buffer.from(payload, 'hex')]);
const swapped = (text, at) => text.slice(0, at) + (text[at] === 'a' ? 'b' : 'a') + text.slice(at + 1);
const addresses = [];
function judge(input, valid, why) {
  let to_hex = null;
  try { to_hex = TronWeb.address.toHex(input) || null; } catch { /* tronweb refuses by throwing */ }
  addresses.push({ input, valid, ...(valid && { hex: body41(input) }), why, tronweb_is_address: TronWeb.isAddress(input), tronweb_to_hex: to_hex });
}
const body41 = (input) => (input.startsWith('T') ? hex(input) : input.toLowerCase());
for (let index = 0; index < 12; index++) judge(address('address', index), true, 'base58 with checksum');
judge(USDT, true, 'base58 with checksum');
judge(encode(`41${'00'.repeat(20)}`), true, 'the zero address: well-formed; nobody has its key');
judge(encode(`41${'ff'.repeat(20)}`), true, 'the highest address');
judge(body, false, 'hex with 41: tronweb takes it; a customer never types it, and it has no checksum');
judge(body.toUpperCase(), false, 'hex with 41, capitals');
judge(`0x${body}`, false, 'hex with 0x41');
judge(`0x${body.slice(2)}`, false, 'an EVM address');
judge(body.slice(2), false, 'hex without 41');
judge(`a0${body.slice(2)}`, false, 'hex with the prefix of a test network');
judge(swapped(good, 33), false, 'bad checksum: last character');
judge(swapped(good, 10), false, 'bad checksum: a character in the middle');
judge(good.slice(0, 10) + good[11] + good[10] + good.slice(12), false, 'bad checksum: two characters in each other\'s place');
judge(good.toLowerCase(), false, 'lower case');
judge(good.toUpperCase(), false, 'upper case');
judge(encode(`a0${body.slice(2)}`), false, 'wrong prefix byte a0, checksum right');
judge(encode(`00${body.slice(2)}`), false, 'wrong prefix byte 00 (as Bitcoin), checksum right');
judge(encode(`42${body.slice(2)}`), false, 'wrong prefix byte 42, checksum right');
judge(encode(body.slice(0, 40)), false, '20 bytes, checksum right');
judge(encode(`${body}00`), false, '22 bytes, checksum right');
judge(encode('41'), false, 'one byte, checksum right');
judge(good.slice(0, 33), false, 'a character missing');
judge(`${good}1`, false, 'a character too many');
judge(`1${good}`, false, 'a leading 1: a leading zero byte');
judge(` ${good}`, false, 'a space before');
judge(`${good} `, false, 'a space behind');
judge(`${good}\n`, false, 'a line end behind');
judge(good.replace(/.$/, '0'), false, '0 is not in the alphabet');
judge(good.replace(/.$/, 'l'), false, 'l is not in the alphabet');
judge(good.replace(/.$/, 'é'), false, 'not ASCII');
judge('', false, 'empty');
judge('T', false, 'one letter');
golden(import.meta.url, 'addresses.json', addresses);
