/*
 * A program: produce one record for each line of the input, a JSON object of bootstrap, topic and credentials (tests/clients/
 * five_listeners.py, Hand); a line of JSON answers: null, or what KafkaJS complains of.
 */
'use strict'

const fs = require('fs')
const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

function saslOf ({ mechanism, user, password, token }) {
  if (mechanism === 'OAUTHBEARER') {
    return { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
  }
  return mechanism ? { mechanism: mechanism.toLowerCase(), username: user, password } : undefined
}

function tlsOf ({ authority, certificate }) {
  const own = certificate ? fs.readFileSync(certificate) : undefined
  return authority ? { ca: [fs.readFileSync(authority)], cert: own, key: own } : undefined
}

async function produce (hand) {
  const kafka = new Kafka({
    brokers: hand.bootstrap.split(','),
    logLevel: logLevel.NOTHING,
    sasl: saslOf(hand),
    ssl: tlsOf(hand),
    retry: { retries: 1, initialRetryTime: 50 },
  })
  const producer = kafka.producer()
  try {
    await producer.connect()
    await producer.send({ topic: hand.topic, acks: -1, messages: [{ value: 'x' }] })
    return null
  } catch (error) {
    return `${error.name}: ${error.message}`
  } finally {
    await producer.disconnect()
  }
}

async function main () {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await produce(JSON.parse(line))) + '\n')
  }
}

main()
