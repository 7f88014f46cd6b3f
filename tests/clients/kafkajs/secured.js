// Does the tasks of secured_clients/programs.py by kafkajs.
const fs = require('fs')
const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

const REAUTHENTICATE_BEFORE_END_MS = 4000
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

const sasl = ({ mechanism, user, password, token }) => {
  if (!mechanism) return undefined
  if (mechanism === 'OAUTHBEARER') return { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
  return { mechanism: mechanism.toLowerCase(), username: user, password }
}

const client = (task) => new Kafka({
  brokers: [task.bootstrap],
  ssl: {
    ca: fs.readFileSync(task.authority),
    ...(task.certificate && { cert: fs.readFileSync(task.certificate), key: fs.readFileSync(task.key) }),
  },
  sasl: sasl(task),
  reauthenticationThreshold: REAUTHENTICATE_BEFORE_END_MS,
  connectionTimeout: 30000,
  logLevel: logLevel.NOTHING,
  retry: { retries: 3, initialRetryTime: 100 },
})

async function produce (kafka, task) {
  const producer = kafka.producer()
  await producer.connect()
  try {
    for (let number = 0; number < task.records; number++) {
      await producer.send({ topic: task.topic, messages: [{ value: `${number}` }] })
      if (task.pause_ms) await pause(task.pause_ms)
    }
  } finally {
    await producer.disconnect()
  }
}

async function consume (kafka, task) {
  const consumer = kafka.consumer({ groupId: task.topic })
  const values = []
  await consumer.connect()
  await consumer.subscribe({ topic: task.topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      eachMessage: async ({ message }) => {
        values.push(message.value.toString())
        if (values.length === task.records) resolve()
      },
    }).catch(reject)
  })
  await consumer.disconnect()
  return values
}

async function answer (task) {
  try {
    const kafka = client(task)
    await produce(kafka, task)
    return { values: await consume(kafka, task) }
  } catch (error) {
    return { refused: `${error} ${error.cause || ''}` }
  }
}

async function main () {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answer(JSON.parse(line))))
  }
}

main()
