// What a test asks @platformatic/kafka to do: `node drive.mjs BOOTSTRAP TOPIC TASK`, with the result as one line of JSON.
// Its clients where they can do it, else its functions for single requests.
import {
  Admin, Connection, Consumer, ConfigResourceTypes, ListOffsetTimestamps, Producer, stringDeserializers, stringSerializers,
  alterReplicaLogDirsV2, consumerGroupDescribeV0, describeClusterV1, describeProducersV0,
  describeTopicPartitionsV0, describeUserScramCredentialsV0, findCoordinatorV4, listPartitionReassignmentsV0,
  offsetForLeaderEpochV4,
} from '@platformatic/kafka'

const [bootstrap, topic, task] = process.argv.slice(2)
const bootstrapBrokers = [bootstrap]
const patience = { timeout: 60000, connectTimeout: 60000 } // five seconds by themselves, which a busy machine may take
const RECORDS = 200
const [host, port] = bootstrap.split(':')
const asText = (_, value) => typeof value === 'bigint' ? `${value}` : value

async function withClient (client, use) {
  try { return await use(client) } finally { await client.close() }
}

const admin = (use) => withClient(new Admin({ clientId: 'judge', bootstrapBrokers, ...patience }), use)

// One request of the client's own functions, on a connection of its own.
const ask = (what, ...fields) => askAt(host, port, what, ...fields)

async function askAt (host, port, { api }, ...fields) {
  const connection = new Connection('judge', { connectTimeout: patience.connectTimeout })
  await connection.connect(host, Number(port))
  return withClient(connection, () => api.async(connection, ...fields))
}

const create = (client, partitions = 2) => client.createTopics({ topics: [topic], partitions, replicas: -1 })

const produce = (settings = {}) => withClient(
  new Producer({ clientId: 'judge', bootstrapBrokers, ...patience, serializers: stringSerializers, ...settings }),
  (producer) => producer.send({
    acks: -1,
    messages: [...Array(RECORDS).keys()].map((index) => ({
      topic, key: `key-${index}`, value: `value-${index}`, partition: index % 2, headers: { trace: `${index}` },
    })),
  }))

// Values once so many have come; their offsets are committed.
const consume = (settings = {}) => withClient(
  new Consumer({ clientId: 'judge', groupId: topic, bootstrapBrokers, ...patience, deserializers: stringDeserializers, ...settings }),
  async (consumer) => {
    const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: false, sessionTimeout: 30000, heartbeatInterval: 500 })
    const values = []
    const last = new Map()
    for await (const message of stream) {
      values.push(message.value)
      last.set(message.partition, message)
      if (values.length === RECORDS) break
    }
    for (const message of last.values()) await message.commit()
    await stream.close()
    return values.sort()
  })

const names = (found) => found.map((one) => one.name).sort()

const tasks = {
  records: () => admin(async (client) => {
    await create(client)
    await produce({ idempotent: true })
    const partitions = [0, 1].map((partitionIndex) => ({ partitionIndex, timestamp: ListOffsetTimestamps.LATEST }))
    const [listed] = await client.listOffsets({ topics: [{ name: topic, partitions }] })
    const [deleted] = await client.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: 7n }] }] })
    const { topics: [ends] } = await ask(offsetForLeaderEpochV4, -1, [{ name: topic, partitions: [{ partitionIndex: 0, currentLeaderEpoch: -1, leaderEpoch: 0 }] }])
    const { topics: [producers] } = await ask(describeProducersV0, [{ name: topic, partitionIndexes: [0] }])
    return {
      ends: listed.partitions.map((one) => one.offset), low: deleted.partitions[0].lowWatermark,
      epochEnd: ends.partitions[0].endOffset, lastSequence: producers.partitions[0].activeProducers[0].lastSequence,
    }
  }),
  group: () => admin(async (client) => {
    await create(client)
    await produce()
    const values = await consume()
    const offsets = await client.listConsumerGroupOffsets({ groups: [topic] })
    await client.alterConsumerGroupOffsets({ groupId: topic, topics: [{ name: topic, partitionOffsets: [{ partition: 0, offset: 5n }] }] })
    await client.deleteConsumerGroupOffsets({ groupId: topic, topics: [{ name: topic, partitionIndexes: [1] }] })
    const after = await client.listConsumerGroupOffsets({ groups: [topic] })
    const listed = [...(await client.listGroups({})).keys()].includes(topic)
    const state = (await client.describeGroups({ groups: [topic] })).get(topic).state
    await client.deleteGroups({ groups: [topic] })
    const committed = (found) => found[0].topics[0].partitions.map((one) => [one.partitionIndex, one.committedOffset]).sort()
    return { values, committed: committed(offsets), after: committed(after), listed, state }
  }),
  newGroup: () => admin(async (client) => {
    await create(client)
    await produce()
    const values = await consume({ groupProtocol: 'consumer' })
    const { coordinators: [one] } = await ask(findCoordinatorV4, 0, [topic])
    const { groups: [group] } = await askAt(one.host, one.port, consumerGroupDescribeV0, [topic], false) // it can't read members: none is left
    return { values, state: group.groupState, members: group.members }
  }),
  topics: () => admin(async (client) => {
    await create(client)
    await client.createPartitions({ topics: [{ name: topic, count: 3, assignments: null }] })
    let found
    do { found = await ask(describeTopicPartitionsV0, [{ name: topic }], 100) } while (found.topics[0].partitions.length < 3)
    const listed = (await client.listTopics()).includes(topic)
    await client.deleteTopics({ topics: [topic] })
    let left
    do { left = (await client.listTopics()).includes(topic) } while (left)
    return { listed, left, leaders: found.topics[0].partitions.map((one) => one.leaderId) }
  }),
  configs: () => admin(async (client) => {
    await create(client)
    const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }
    const described = async () => (await client.describeConfigs({ resources: [{ ...resource, configurationKeys: ['segment.ms', 'retention.ms'] }] }))[0]
      .configs.map((one) => [one.name, one.value]).sort()
    await client.alterConfigs({ resources: [{ ...resource, configs: [{ name: 'segment.ms', value: '60000' }] }] })
    await client.incrementalAlterConfigs({ resources: [{ ...resource, configs: [{ name: 'retention.ms', configOperation: 0, value: '70000' }] }] })
    let found
    do { found = await described() } while (found[0][1] !== '70000' || found[1][1] !== '60000')
    return found
  }),
  cluster: () => admin(async (client) => {
    await create(client, 1)
    const [logDirs] = await client.describeLogDirs({ topics: [{ name: topic, partitions: [0] }] })
    const path = logDirs.results[0].logDir
    const { results: [moved] } = await ask(alterReplicaLogDirsV2, [{ path, topics: [{ name: topic, partitions: [0] }] }])
    const cluster = await ask(describeClusterV1, false, 1)
    const { topics } = await ask(listPartitionReassignmentsV0, 10000, null)
    return {
      inDirectory: names(logDirs.results[0].topics), moved: moved.partitions[0].errorCode,
      brokers: cluster.brokers.map((one) => one.brokerId), reassignments: topics,
    }
  }),
  quotasAndUsers: () => admin(async (client) => {
    const described = () => client.describeClientQuotas({ components: [{ entityType: 'client-id', matchType: 0, match: topic }], strict: true })
    const alter = (remove) => client.alterClientQuotas({
      entries: [{ entities: [{ entityType: 'client-id', entityName: topic }], ops: [{ key: 'producer_byte_rate', value: 1048576, remove }] }],
      validateOnly: false,
    })
    await alter(false)
    let one
    do { [one] = await described() } while (!one)
    await alter(true)
    let left
    do { left = (await described()).length } while (left)
    const unknown = await ask(describeUserScramCredentialsV0, [{ name: 'nobody' }]).catch((error) => error.errors[0].apiId || `${error.errors[0]}`)
    return { set: Object.fromEntries(one.values.map(({ key, value }) => [key, value])), left, unknown }
  }),
}

tasks[task]().then(
  (result) => { console.log(JSON.stringify(result, asText)); process.exit(0) },
  (error) => { console.error(error); process.exit(1) },
)
