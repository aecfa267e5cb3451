/*
 * A program: one transactional producer of KafkaJS, `transactor.js BOOTSTRAP ID TIMEOUT_MS`. It ends when its input does.
 *
 * It keeps to the lines of tests/interop/transactor.py. KafkaJS fetches its producer id with its first transaction, not
 * before.
 */
'use strict'

const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, transactionalId, timeoutMs] = process.argv.slice(2)
const tell = (...words) => process.stdout.write(words.join(' ').replace(/\s+/g, ' ') + '\n')

const kafka = new Kafka({
  brokers: bootstrap.split(','),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, retries: 8 }, // for half a minute: its own five are over after three seconds
})
const producer = kafka.producer({
  transactionalId,
  transactionTimeout: Number(timeoutMs),
  maxInFlightRequests: 1,
  idempotent: true,
})
let transaction

const steps = {
  init: () => producer.connect(),
  begin: async () => { transaction = await producer.transaction() },
  send: (topic, partition, value) =>
    transaction.send({ topic, acks: -1, messages: [{ partition: Number(partition), value }] }),
  offset: (consumerGroupId, topic, partition, offset) =>
    transaction.sendOffsets({ consumerGroupId, topics: [{ topic, partitions: [{ partition: Number(partition), offset }] }] }),
  flush: async () => {},
  commit: () => transaction.commit(),
  abort: () => transaction.abort(),
}

async function main () {
  tell('done')
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [step, ...words] = line.split(' ')
    try {
      await steps[step](...words)
      tell('done')
    } catch (error) {
      tell('failed', error.name, error.type, error.message)
    }
  }
  process.exit(0)
}

main()
