/*
 * A program: one KafkaJS consumer of a group, `member.js BOOTSTRAP TOPIC GROUP`. It ends when its input does.
 *
 * Told on its output, a line each, as by tests/clients/member.py: `has 0 2` when its partitions change, `read VALUE` for
 * each record, before it commits.
 */
'use strict'

const { Kafka, logLevel } = require('kafkajs')
const { roundrobin } = require('./assigner.js')

const [bootstrap, topic, group] = process.argv.slice(2)
const tell = (...words) => process.stdout.write(words.join(' ') + '\n')

async function main () {
  const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, retry: { initialRetryTime: 100 } })
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout: 6000,
    rebalanceTimeout: 6000,
    heartbeatInterval: 500,
    maxWaitTimeInMs: 100,
    metadataMaxAge: 1000,
    partitionAssigners: [roundrobin],
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => tell('has', ...(payload.memberAssignment[topic] || [])))
  consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || process.exit(1))
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachBatch: async ({ batch }) => batch.messages.forEach(({ value }) => tell('read', value)),
  })
  process.stdin.on('end', async () => {
    await consumer.disconnect()
    process.exit(0)
  })
  process.stdin.resume()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
