/*
 * A program: consume, transform, produce with KafkaJS, `copier.js MODE BOOTSTRAP TOPIC GROUP`; see tests/interop/copier.py.
 *
 * KafkaJS cannot name its generation: an id for each partition fences whoever had that before.
 */
'use strict'

const { roundrobin } = require('./assigner.js')
const { Kafka, logLevel } = require('kafkajs')

const [mode, bootstrap, topic, group] = process.argv.slice(2)
const tell = (...words) => process.stdout.write(words.join(' ').replace(/\s+/g, ' ') + '\n')

const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, retry: { initialRetryTime: 100 } })
const admin = kafka.admin()
const consumer = kafka.consumer({
  groupId: group,
  sessionTimeout: 6000,
  rebalanceTimeout: 6000,
  heartbeatInterval: 500,
  maxWaitTimeInMs: 100,
  partitionAssigners: [roundrobin],
})
const reached = new Map() /* by partition, its producer and the offset that this one's transactions have reached */

/* Whoever had the partition is fenced and its transaction ended: from now on it is known what is committed. */
async function begin (partition) {
  const former = reached.get(partition)
  reached.delete(partition)
  if (former) {
    await former.producer.disconnect()
  }
  const producer = kafka.producer({
    transactionalId: `${group}-${partition}`,
    transactionTimeout: 5000,
    maxInFlightRequests: 1,
    idempotent: true,
  })
  await producer.connect()
  await (await producer.transaction()).abort() /* it fetches its id with its first transaction, not before */
  const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  const offset = Math.max(Number(partitions.find((each) => each.partition === partition).offset), 0)
  reached.set(partition, { producer, offset })
  consumer.seek({ topic, partition, offset: String(offset) })
}

async function copy (producer, partition, messages) {
  const transaction = await producer.transaction()
  const readTo = Number(messages[messages.length - 1].offset) + 1
  await transaction.send({ topic: group, acks: -1, messages: messages.map(({ value }) => ({ partition, value })) })
  const topics = [{ topic, partitions: [{ partition, offset: String(readTo) }] }]
  await transaction.sendOffsets({ consumerGroupId: group, topics })
  if (mode === 'holds') {
    tell('holds')
    await new Promise(() => {})
  }
  await transaction.commit()
  reached.set(partition, { producer, offset: readTo })
}

async function eachBatch ({ batch: { partition, messages }, resolveOffset }) {
  const mine = reached.get(partition)
  if (!mine || mine.offset !== Number(messages[0].offset)) {
    return begin(partition)
  }
  try {
    await copy(mine.producer, partition, messages)
  } catch (error) {
    tell('undone', error.name, error.type, error.message)
    return begin(partition)
  }
  resolveOffset(messages[messages.length - 1].offset)
  messages.forEach(({ value }) => tell('read', value))
}

async function main () {
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => tell('has', ...(payload.memberAssignment[topic] || [])))
  consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || process.exit(1))
  await Promise.all([admin.connect(), consumer.connect()])
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
  process.stdin.on('end', () => process.exit(0))
  process.stdin.resume()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
