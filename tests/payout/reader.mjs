// Walks every block of every chain and counts what was paid, by destination: the word of somebody who shares no code with us (ethers, tronweb
// and a Bitcoin client read the chains). Each job has a destination of its own, so two payments to one are a job that was paid twice.
//
//   tests/tools/node.sh tests/payout/reader.mjs RECORD
//
// RECORD is what `bursar chaos custody --judge "tests/tools/node.sh tests/payout/reader.mjs"` writes: the chains, our wallets, the jobs with their
// end, the entries of our books and what wallet_balances makes of them. It prints one JSON object and exits with 1 if anything is wrong:
//
//   paid_twice       destinations with more than one payment
//   lost             jobs that are confirmed, and no block pays them
//   paid_otherwise   payments of another amount or coin than the job has
//   failed_and_paid  jobs that are over without a payment, and a block pays them
//   stranded         jobs that have no end
//   unbooked         changes of our wallets that no entry explains, fees among them, or entries that no block explains
//   topups           gas that went to an address which had enough of it, or of which no confirmed job says
//   balances         wallets whose movements do not come to what the node says they have, or of which wallet_balances says something else
import { readFileSync } from 'node:fs';
import { tool } from '../tools/golden.mjs';

const record = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const wrong = { paid_twice: [], lost: [], paid_otherwise: [], failed_and_paid: [], stranded: [], unbooked: [], topups: [], balances: [] };
const walked = {};

// What the walk of one chain gathers: payments by who is paid, and what each of our wallets gets and gives, by transaction.
class Books {
  constructor(chain) {
    this.chain = chain;
    this.own = new Set(chain.wallets);
    this.payments = new Map(); // destination -> [{ asset, amount, transaction }]
    this.changes = new Map(); // wallet, asset, transaction -> amount
    this.sums = new Map(); // wallet, asset -> amount
    this.counts = { blocks: 0, transactions: 0, payments: 0, fees: 0, reverted: 0, topups: 0, balances: 0 };
    const gas = chain.gas ?? { wallets: [], users: [], below: '0', topups: {} };
    [this.givers, this.users, this.below] = [new Set(gas.wallets), new Set(gas.users), BigInt(gas.below)];
    this.topups = new Map(); // address -> how often it was given gas
    this.told = gas.topups;
  }

  paid(from, to, asset, amount, transaction) {
    if (amount === 0n) return;
    this.counts.payments += 1;
    this.payments.set(to, [...(this.payments.get(to) ?? []), { asset, amount, transaction }]);
    if (this.givers.has(from) && this.users.has(to)) this.gave(to, asset, amount, transaction);
    this.change(from, asset, transaction, -amount);
    this.change(to, asset, transaction, amount);
  }

  // Whoever has enough is given nothing: the walk knows what the address had when this block came.
  gave(to, asset, amount, transaction) {
    this.counts.topups += 1;
    this.topups.set(to, (this.topups.get(to) ?? 0) + 1);
    const had = this.sums.get([to, asset].join(' ')) ?? 0n;
    if (had >= this.below) wrong.topups.push({ chain: this.chain.name, to, amount: `${amount}`, had: `${had}`, transaction });
  }

  fee(from, asset, amount, transaction) {
    if (this.own.has(from)) this.counts.fees += 1;
    this.change(from, asset, transaction, -amount);
  }

  // It cost its fee, and paid nothing.
  reverted(from) {
    if (this.own.has(from)) this.counts.reverted += 1;
  }

  change(wallet, asset, transaction, amount) {
    if (!this.own.has(wallet)) return;
    const [key, sum] = [[wallet, asset, transaction].join(' '), [wallet, asset].join(' ')];
    this.changes.set(key, (this.changes.get(key) ?? 0n) + amount);
    this.sums.set(sum, (this.sums.get(sum) ?? 0n) + amount);
  }

  // Jobs against payments.
  judge() {
    const { name, jobs, entries } = this.chain;
    for (const job of jobs) {
      const payments = this.payments.get(job.to) ?? [];
      const words = { chain: name, ...job, payments: payments.map((one) => `${one.amount} ${one.asset} in ${one.transaction}`) };
      if (payments.length > 1) wrong.paid_twice.push(words);
      if (payments.some((one) => one.asset !== job.asset || one.amount !== BigInt(job.amount))) wrong.paid_otherwise.push(words);
      if (job.state === 'confirmed' && payments.length === 0) wrong.lost.push(words);
      if (job.state === 'failed_final' && payments.length > 0) wrong.failed_and_paid.push(words);
      if (job.state !== 'confirmed' && job.state !== 'failed_final') wrong.stranded.push(words);
    }
    for (const to of this.users) {
      const [given, told] = [this.topups.get(to) ?? 0, this.told[to] ?? 0];
      if (given !== told) wrong.topups.push({ chain: name, to, given, confirmed_jobs: told });
    }
    // What the blocks do to our wallets, against the entries, both ways.
    const booked = new Map();
    for (const one of entries.filter((entry) => this.own.has(entry.wallet))) {
      const key = [one.wallet, one.asset, one.transaction].join(' ');
      booked.set(key, (booked.get(key) ?? 0n) + BigInt(one.amount));
    }
    for (const key of new Set([...this.changes.keys(), ...booked.keys()])) {
      const [chain, books] = [this.changes.get(key) ?? 0n, booked.get(key) ?? 0n];
      if (chain !== books) wrong.unbooked.push({ chain: name, change: key, by_the_chain: `${chain}`, by_the_entries: `${books}` });
    }
  }

  // What each wallet began with, and what moved, against what the node says; and what we say it has.
  balance(wallet, asset, start, has) {
    const moved = this.sums.get([wallet, asset].join(' ')) ?? 0n;
    const ours = this.chain.balances.filter((one) => one.wallet === wallet && one.asset === asset);
    const booked = ours.reduce((sum, one) => sum + BigInt(one.amount), 0n);
    if (start + moved !== has || booked !== has || ours.length > 1) {
      const [words, figures] = [{ chain: this.chain.name, wallet, asset }, { start, moved, booked, has }];
      wrong.balances.push({ ...words, ...Object.fromEntries(Object.entries(figures).map(([name, value]) => [name, `${value}`])) });
    }
    this.counts.balances += 1;
  }
}

const native = (chain) => chain.coins.find((coin) => coin.contract === null).asset;
const TRANSFER = 'Transfer(address,address,uint256)';

async function walkEvm(chain) {
  const ethers = tool('ethers');
  const provider = new ethers.JsonRpcProvider(chain.url, undefined, { staticNetwork: true, cacheTimeout: -1, batchMaxCount: 100 });
  const token = new ethers.Interface(['event Transfer(address indexed from, address indexed to, uint256 value)']);
  const topic = ethers.id(TRANSFER);
  const [books, coin] = [new Books(chain), native(chain)];
  const tokens = new Map(chain.coins.filter((one) => one.contract).map((one) => [ethers.getAddress(one.contract), one.asset]));
  const last = await provider.getBlockNumber();
  for (let height = 0; height <= last; height++) {
    const block = await provider.send('eth_getBlockByNumber', [ethers.toQuantity(height), true]);
    const receipts = await Promise.all(block.transactions.map((one) => provider.send('eth_getTransactionReceipt', [one.hash])));
    books.counts.blocks += 1;
    block.transactions.forEach((transaction, at) => {
      const [receipt, hash] = [receipts[at], transaction.hash.slice(2)];
      if (receipt.blockHash !== block.hash) throw new Error(`${transaction.hash}: its receipt is of another block`);
      books.counts.transactions += 1;
      const [from, to] = [ethers.getAddress(transaction.from), transaction.to && ethers.getAddress(transaction.to)];
      books.fee(from, coin, BigInt(receipt.gasUsed) * BigInt(receipt.effectiveGasPrice), hash);
      if (BigInt(receipt.status) !== 1n) return books.reverted(from);
      books.paid(from, to, coin, BigInt(transaction.value), hash);
      for (const log of receipt.logs) {
        const asset = tokens.get(ethers.getAddress(log.address));
        if (!asset || log.topics[0] !== topic) continue;
        const { args } = token.parseLog(log);
        books.paid(args.from, args.to, asset, args.value, hash);
      }
    });
  }
  const holder = new ethers.Interface(['function balanceOf(address) view returns (uint256)']);
  for (const wallet of chain.wallets) {
    books.balance(wallet, coin, await provider.getBalance(wallet, 0), await provider.getBalance(wallet, last));
    for (const [contract, asset] of tokens) {
      const said = await provider.call({ to: contract, data: holder.encodeFunctionData('balanceOf', [wallet]), blockTag: last });
      books.balance(wallet, asset, 0n, BigInt(said));
    }
  }
  provider.destroy();
  return books;
}

async function walkTron(chain) {
  const { TronWeb, utils } = tool('tronweb');
  const tron = new TronWeb({ fullHost: chain.url });
  const topic = utils.ethersUtils.id(TRANSFER).slice(2);
  const base58 = (hex) => tron.address.fromHex(hex.length === 42 ? hex : `41${hex.slice(-40)}`);
  const [books, coin] = [new Books(chain), native(chain)];
  const tokens = new Map(chain.coins.filter((one) => one.contract).map((one) => [one.contract, one.asset]));
  const last = (await tron.trx.getCurrentBlock()).block_header.raw_data.number;
  for (let height = 0; height <= last; height++) {
    const block = await tron.trx.getBlockByNumber(height);
    const infos = await tron.fullNode.request('wallet/gettransactioninfobyblocknum', { num: height }, 'post');
    const byId = new Map((Array.isArray(infos) ? infos : []).map((info) => [info.id, info]));
    books.counts.blocks += 1;
    for (const transaction of block.transactions ?? []) {
      books.counts.transactions += 1;
      const [id, { type, parameter: { value } }] = [transaction.txID, transaction.raw_data.contract[0]];
      const [info, from] = [byId.get(id), base58(value.owner_address)];
      if (!info) throw new Error(`${id}: it has no receipt`);
      books.fee(from, coin, BigInt(info.fee ?? 0), id);
      if (transaction.ret[0].contractRet !== 'SUCCESS') {
        books.reverted(from);
        continue;
      }
      if (type === 'TransferContract') books.paid(from, base58(value.to_address), coin, BigInt(value.amount), id);
      for (const log of info.log ?? []) {
        const asset = tokens.get(base58(log.address));
        if (!asset || log.topics[0] !== topic) continue;
        books.paid(base58(log.topics[1]), base58(log.topics[2]), asset, BigInt(`0x${log.data}`), id);
      }
    }
  }
  tron.setAddress(chain.wallets[0]);
  for (const wallet of chain.wallets) {
    books.balance(wallet, coin, 0n, BigInt(await tron.trx.getUnconfirmedBalance(wallet)));
    for (const [contract, asset] of tokens) {
      const parameters = [{ type: 'address', value: wallet }];
      const said = await tron.transactionBuilder.triggerConstantContract(contract, 'balanceOf(address)', {}, parameters, wallet);
      books.balance(wallet, asset, 0n, BigInt(`0x${said.constant_result[0]}`));
    }
  }
  return books;
}

async function walkBitcoin(chain) {
  const Client = tool('bitcoin-core');
  const [username, password] = chain.login.split(':');
  const client = new Client({ host: chain.url, username, password });
  const ask = (method, ...parameters) => client.command(method, ...parameters);
  // Eight places, which a double holds exactly for all coins that there are.
  const satoshi = (value) => BigInt(Math.round(value * 1e8));
  const [books, coin] = [new Books(chain), native(chain)];
  const last = await ask('getblockcount');
  for (let height = 0; height <= last; height++) {
    const block = await ask('getblock', await ask('getblockhash', height), 3);
    books.counts.blocks += 1;
    for (const transaction of block.tx) {
      books.counts.transactions += 1;
      const spent = transaction.vin.filter((input) => input.prevout).map(({ prevout }) => prevout);
      const ours = spent.some((one) => books.own.has(one.scriptPubKey.address));
      if (ours) books.counts.fees += 1;
      for (const one of spent) books.change(one.scriptPubKey.address, coin, transaction.txid, -satoshi(one.value));
      for (const one of transaction.vout) {
        const [to, amount] = [one.scriptPubKey.address, satoshi(one.value)];
        books.change(to, coin, transaction.txid, amount);
        if (!to || books.own.has(to) || transaction.vin[0].coinbase) continue;
        books.counts.payments += 1;
        books.payments.set(to, [...(books.payments.get(to) ?? []), { asset: coin, amount, transaction: transaction.txid }]);
      }
    }
  }
  for (const wallet of chain.wallets) {
    const found = await ask('scantxoutset', 'start', [`addr(${wallet})`]);
    books.balance(wallet, coin, 0n, satoshi(found.total_amount));
  }
  return books;
}

const walks = { evm: walkEvm, tron: walkTron, bitcoin: walkBitcoin };
for (const chain of record.chains) {
  const books = await walks[chain.kind](chain);
  books.judge();
  walked[chain.name] = books.counts;
}
const found = Object.values(wrong).reduce((sum, list) => sum + list.length, 0);
console.log(JSON.stringify({ walked, jobs: record.chains.reduce((sum, chain) => sum + chain.jobs.length, 0), wrong }));
process.exit(found === 0 ? 0 : 1);
