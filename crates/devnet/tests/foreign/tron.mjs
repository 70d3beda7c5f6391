// Drives the devnet's TRON chain with tronweb. Mines by writing `mine n` and waiting for an answer.
//
// node tron.mjs <url> <node_modules> <token> <key> <key> <key>
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import path from 'node:path'
import readline from 'node:readline'

const [url, modules, token, ...keys] = process.argv.slice(2)
const { TronWeb } = createRequire(path.join(modules, 'any.js'))('tronweb')

const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const mine = async (blocks) => {
  process.stdout.write(`mine ${blocks}\n`)
  assert.equal((await answers.next()).value, 'mined')
}
const refused = (answer, code, text) => {
  assert.equal(answer.code, code, JSON.stringify(answer))
  assert.match(Buffer.from(answer.message, 'hex').toString(), text)
}

const [alice, bob, carol] = keys.map((privateKey) => new TronWeb({ fullHost: url, privateKey }))
const address = (who) => who.defaultAddress.base58
assert.deepEqual(await alice.isConnected(), { fullNode: true, solidityNode: true, eventServer: false })

// TRX.
const funded = await alice.trx.getBalance(address(bob))
assert.equal(funded, 1_000_000_000_000)
const sent = await alice.trx.sendTransaction(address(bob), 1_500_000)
assert.equal(sent.result, true)
await assert.rejects(alice.trx.getTransaction(sent.txid), /not found/)
await mine(1)
const transaction = await alice.trx.getTransaction(sent.txid)
assert.equal(transaction.ret[0].contractRet, 'SUCCESS')
assert.equal(transaction.raw_data.contract[0].parameter.value.amount, 1_500_000)
assert.equal(await alice.trx.getUnconfirmedBalance(address(bob)), funded + 1_500_000)
// tronweb's balance is the solidified one.
assert.equal(await alice.trx.getBalance(address(bob)), funded)
assert.deepEqual(await alice.trx.getTransactionInfo(sent.txid), {})
assert.equal((await alice.trx.getUnconfirmedTransactionInfo(sent.txid)).id, sent.txid)
await mine(19)
assert.equal(await alice.trx.getBalance(address(bob)), funded + 1_500_000)
const info = await alice.trx.getTransactionInfo(sent.txid)
assert.equal(info.blockNumber, (await alice.trx.getConfirmedCurrentBlock()).block_header.raw_data.number)

// The token, through its ABI.
const usdt = await alice.contract().at(token)
assert.equal(await usdt.name().call(), 'Tether USD')
assert.equal(await usdt.symbol().call(), 'USDT')
assert.equal(BigInt(await usdt.decimals().call()), 6n)
const before = BigInt(await usdt.balanceOf(address(bob)).call())
const id = await usdt.transfer(address(bob), 2_500_000).send({ feeLimit: 50_000_000 })
await mine(1)
assert.equal(BigInt(await usdt.balanceOf(address(bob)).call()), before + 2_500_000n)
const paid = await alice.trx.getUnconfirmedTransactionInfo(id)
assert.equal(paid.receipt.result, 'SUCCESS')
assert.equal(paid.receipt.energy_usage_total, 64_285)
assert.equal(paid.fee, paid.receipt.energy_fee + (paid.receipt.net_fee ?? 0))
assert.equal(TronWeb.address.fromHex('41' + paid.log[0].address), token)
assert.equal(BigInt('0x' + paid.log[0].data), 2_500_000n)
const events = await alice.getEventResult(token, { eventName: 'Transfer' })
assert.equal(events.data[0].transaction_id, id)
assert.equal(events.data[0].result.value, '2500000')
const own = await alice.getEventByTransactionID(id)
assert.equal(own.data[0].event_name, 'Transfer')

// An allowance, spent by another.
await usdt.approve(address(carol), 700).send()
await mine(1)
const theirs = await carol.contract().at(token)
assert.equal(BigInt(await theirs.allowance(address(alice), address(carol)).call()), 700n)
await theirs.transferFrom(address(alice), address(carol), 600).send()
await mine(1)
assert.equal(BigInt(await theirs.allowance(address(alice), address(carol)).call()), 100n)

// Made by the node, signed here, sent as JSON and as bytes.
const parameters = [{ type: 'address', value: address(bob) }, { type: 'uint256', value: 9 }]
const trigger = (options = {}) =>
  alice.transactionBuilder.triggerSmartContract(token, 'transfer(address,uint256)', { feeLimit: 50_000_000, ...options }, parameters, address(alice))
const made = await trigger()
assert.equal(made.result.result, true)
const signed = await alice.trx.sign(made.transaction)
const taken = await alice.trx.sendRawTransaction(signed)
assert.equal(taken.result, true)
refused(await alice.trx.sendRawTransaction(signed), 'DUP_TRANSACTION_ERROR', /^Dup transaction\.$/)
await mine(1)
refused(await alice.trx.sendRawTransaction(signed), 'DUP_TRANSACTION_ERROR', /^Dup transaction\.$/)

const bytes = (transaction) => {
  const pb = alice.utils.transaction.txJsonToPb(transaction)
  for (const signature of transaction.signature) pb.addSignature(Uint8Array.from(Buffer.from(signature, 'hex')))
  return Buffer.from(pb.serializeBinary()).toString('hex')
}
const local = await alice.trx.sign((await trigger({ txLocal: true })).transaction)
const hexed = await alice.trx.sendHexTransaction(bytes(local))
assert.equal(hexed.result, true, JSON.stringify(hexed))
assert.equal(hexed.txid, local.txID)
await mine(1)
assert.equal((await alice.trx.getUnconfirmedTransactionInfo(local.txID)).receipt.result, 'SUCCESS')

// Estimates.
const estimate = await alice.transactionBuilder.estimateEnergy(token, 'transfer(address,uint256)', {}, parameters, address(alice))
assert.equal(estimate.energy_required, 64_285)
const constant = await alice.transactionBuilder.triggerConstantContract(token, 'transfer(address,uint256)', {}, parameters, address(alice))
assert.equal(constant.energy_used, 64_285)

// What is refused.
const forged = await alice.transactionBuilder.sendTrx(address(bob), 5, address(alice))
await assert.rejects(bob.trx.sign(forged), /Private key does not match/)
const wrong = alice.utils.crypto.signTransaction(bob.defaultPrivateKey, { ...forged })
refused(await alice.trx.sendRawTransaction(wrong), 'SIGERROR', /^Validate signature error: .* is signed by T\w+ but it is not contained of permission\.$/)
const stale = await alice.trx.sign(await alice.transactionBuilder.sendTrx(address(bob), 6, address(alice)))
await mine(20)
refused(await alice.trx.sendRawTransaction(stale), 'TRANSACTION_EXPIRATION_ERROR', /^Transaction expired$/)
const poor = await alice.transactionBuilder.sendTrx(address(bob), 2_000_000_000_000, address(alice))
refused(await alice.trx.sendRawTransaction(await alice.trx.sign(poor)), 'CONTRACT_VALIDATE_ERROR', /balance is not sufficient/)
const many = await alice.trx.multiSign(await alice.transactionBuilder.sendTrx(address(bob), 7, address(alice), { permissionId: 2 }), undefined, 2)
assert.equal((await alice.trx.sendRawTransaction(many)).result, true)
await mine(1)

// A call that fails is mined and says so.
const failing = await alice.transactionBuilder.triggerSmartContract(token, 'transfer(address,uint256)', { feeLimit: 50_000_000 },
  [{ type: 'address', value: address(bob) }, { type: 'uint256', value: '99000000000000000' }], address(alice))
const failed = await alice.trx.sendRawTransaction(await alice.trx.sign(failing.transaction))
await mine(1)
const failure = await alice.trx.getUnconfirmedTransactionInfo(failed.txid)
assert.equal(failure.result, 'FAILED')
assert.equal(failure.receipt.result, 'REVERT')
assert.equal(Buffer.from(failure.resMessage, 'hex').toString(), 'REVERT opcode executed')

// The rest of what tronweb reads.
assert.equal((await alice.trx.getBlockRange(1, 5)).length, 5)
const block = await alice.trx.getBlock(2)
assert.deepEqual(await alice.trx.getBlock(block.blockID), block)
assert.equal(await alice.trx.getEnergyPrices(), '0:100')
assert.equal(await alice.trx.getBandwidthPrices(), '0:1000')
assert.ok((await alice.trx.getChainParameters()).some(({ key, value }) => key === 'getEnergyFee' && value === 100))
assert.equal((await alice.trx.getAccountResources(address(carol))).freeNetLimit, 600)
assert.ok((await alice.trx.getBandwidth(address(carol))) <= 600)
assert.match((await alice.trx.getNodeInfo()).block, /^Num:\d+,ID:[0-9a-f]{64}$/)
console.log('tronweb: all well')
process.exit(0)
