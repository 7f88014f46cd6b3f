// What a test asks kafkajs to do: `node drive.js BOOTSTRAP TOPIC TASK`, with the result as one line of JSON.
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')

const [bootstrap, topic, task] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'judge', brokers: [bootstrap], connectionTimeout: 30000, logLevel: logLevel.ERROR, retry: { retries: 8 } })
const RECORDS = 200
const TIMEOUT_MS = 60000
const messages = () => [...Array(RECORDS).keys()].map((index) => ({
  key: `key-${index}`, value: `value-${index}`, partition: index % 2, headers: { trace: `${index}` },
}))

async function withClient (client, use) {
  await client.connect()
  try { return await use(client) } finally { await client.disconnect() }
}

const admin = (use) => withClient(kafka.admin(), use)
const produce = (settings = {}, compression = CompressionTypes.None) =>
  withClient(kafka.producer(settings), (producer) => producer.send({ topic, acks: -1, compression, messages: messages() }))

// Values in the order of their partitions, once so many have come; their offsets are committed.
const consume = (groupId, count) => withClient(kafka.consumer({ groupId, sessionTimeout: 30000, heartbeatInterval: 500 }), async (consumer) => {
  const values = []
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      eachMessage: async ({ message }) => {
        values.push(message.value.toString())
        if (values.length === count) resolve()
      },
    }).catch(reject)
  })
  await consumer.stop()
  return values.sort()
})

const tasks = {
  topics: () => admin(async (client) => {
    await client.createTopics({ timeout: TIMEOUT_MS, topics: [{ topic, numPartitions: 2 }], waitForLeaders: true })
    const again = await client.createTopics({ timeout: TIMEOUT_MS, topics: [{ topic, numPartitions: 2 }] })
    const { topics } = await client.fetchTopicMetadata({ topics: [topic] })
    await produce()
    await produce({}, CompressionTypes.GZIP)
    const offsets = await client.fetchTopicOffsets(topic)
    const byTime = await client.fetchTopicOffsetsByTimestamp(topic, 0)
    await client.deleteTopics({ timeout: TIMEOUT_MS, topics: [topic] })
    let left
    do { left = (await client.listTopics()).includes(topic) } while (left)
    return { again, partitions: topics[0].partitions.length, offsets, byTime, left }
  }),
  group: async () => {
    await admin((client) => client.createTopics({ timeout: TIMEOUT_MS, topics: [{ topic, numPartitions: 2 }], waitForLeaders: true }))
    await produce({ idempotent: true, maxInFlightRequests: 1 })
    const first = await consume(topic, RECORDS)
    await produce({ idempotent: true, maxInFlightRequests: 1 })
    return { first, second: await consume(topic, RECORDS) }
  },
  groups: () => admin(async (client) => {
    await client.createTopics({ timeout: TIMEOUT_MS, topics: [{ topic, numPartitions: 2 }], waitForLeaders: true })
    await produce()
    await consume(topic, RECORDS)
    const { groups } = await client.listGroups()
    const described = await client.describeGroups([topic])
    await client.setOffsets({ groupId: topic, topic, partitions: [{ partition: 0, offset: '5' }] })
    const offsets = await client.fetchOffsets({ groupId: topic, topics: [topic] })
    const deleted = await client.deleteGroups([topic])
    return {
      listed: groups.map((group) => group.groupId).includes(topic), state: described.groups[0].state, offsets: offsets[0].partitions,
      deleted: deleted.map((group) => group.errorCode || 0),
    }
  }),
  partitions: () => admin(async (client) => {
    await client.createTopics({ timeout: TIMEOUT_MS, topics: [{ topic, numPartitions: 2 }], waitForLeaders: true })
    await client.createPartitions({ timeout: TIMEOUT_MS, topicPartitions: [{ topic, count: 3 }] })
    let topics
    do { ({ topics } = await client.fetchTopicMetadata({ topics: [topic] })) } while (topics[0].partitions.length < 3)
    return topics[0].partitions.length
  }),
  configs: () => admin(async (client) => {
    await client.createTopics({ timeout: TIMEOUT_MS, topics: [{ topic, numPartitions: 1 }], waitForLeaders: true })
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    await client.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'segment.ms', value: '60000' }] }] })
    let found
    do {
      const described = await client.describeConfigs({ resources: [{ ...resource, configNames: ['segment.ms'] }] })
      found = described.resources[0].configEntries.map((entry) => [entry.configName, entry.configValue])
    } while (found[0][1] !== '60000') // a broker hears of changes a little after its controller
    return found
  }),
  cluster: () => admin(async (client) => {
    const { brokers, controller } = await client.describeCluster()
    return { brokers: brokers.map((broker) => broker.nodeId), controller }
  }),
  reassignments: () => admin(async (client) => {
    await client.createTopics({ timeout: TIMEOUT_MS, topics: [{ topic, numPartitions: 1 }], waitForLeaders: true })
    await client.alterPartitionReassignments({ topics: [{ topic, partitionAssignment: [{ partition: 0, replicas: [1] }] }] })
    return client.listPartitionReassignments({})
  }),
}

tasks[task]().then(
  (result) => { console.log(JSON.stringify(result)); process.exit(0) },
  (error) => { console.error(error); process.exit(1) },
)
