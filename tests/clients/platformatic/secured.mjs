// What a test asks @platformatic/kafka to do as alice: `node secured.mjs BOOTSTRAP NAME TASK`; the result is a line of JSON.
// Its functions for single requests have to do: its Admin knows no users, ACLs and tokens.
import { pbkdf2Sync, randomBytes } from 'node:crypto'
import {
  AclOperations, AclPermissionTypes, Connection, ResourcePatternTypes, ResourceTypes, ScramMechanisms,
  alterUserScramCredentialsV0, createAclsV3, createDelegationTokenV3, deleteAclsV3, describeAclsV3,
  describeDelegationTokenV3, describeUserScramCredentialsV0, expireDelegationTokenV2, renewDelegationTokenV2,
} from '@platformatic/kafka'

const [bootstrap, name, task] = process.argv.slice(2)
const [host, port] = bootstrap.split(':')
const ITERATIONS = 4096
const asText = (_, value) => typeof value === 'bigint' ? `${value}` : value

// One request on a connection of its own.
async function ask ({ api }, ...fields) {
  const sasl = { mechanism: 'SCRAM-SHA-512', username: 'alice', password: 'pen"cil\\' }
  const connection = new Connection('judge', { sasl, connectTimeout: 60000 })
  await connection.connect(host, Number(port))
  try { return await api.async(connection, ...fields) } finally { await connection.close() }
}

const acl = {
  resourceType: ResourceTypes.TOPIC, resourceName: name, resourcePatternType: ResourcePatternTypes.PREFIXED,
  principal: 'User:bob', host: '*', operation: AclOperations.READ, permissionType: AclPermissionTypes.ALLOW,
}
const credential = { name, mechanism: ScramMechanisms.SCRAM_SHA_256 }
const users = async () => (await ask(describeUserScramCredentialsV0, [{ name }])).results[0].credentialInfos
const tokens = async () => (await ask(describeDelegationTokenV3, null)).tokens

const tasks = {
  acls: async () => {
    await ask(createAclsV3, [acl])
    const [found] = (await ask(describeAclsV3, acl)).resources
    const { filterResults: [deleted] } = await ask(deleteAclsV3, [acl])
    return { found: found.acls.length, deleted: deleted.matchingAcls.length, left: (await ask(describeAclsV3, acl)).resources }
  },
  users: async () => {
    const salt = randomBytes(16)
    const saltedPassword = pbkdf2Sync('secret', salt, ITERATIONS, 32, 'sha256')
    await ask(alterUserScramCredentialsV0, [], [{ ...credential, iterations: ITERATIONS, salt, saltedPassword }])
    const made = await users()
    await ask(alterUserScramCredentialsV0, [credential], [])
    return made
  },
  tokens: async () => {
    const { tokenId, hmac, principalName } = await ask(createDelegationTokenV3, null, null, [{ principalType: 'User', principalName: 'bob' }], 86400000n)
    const made = (await tokens()).filter((one) => one.tokenId === tokenId)
    await ask(renewDelegationTokenV2, hmac, 3600000n)
    await ask(expireDelegationTokenV2, hmac, -1n)
    const left = (await tokens()).filter((one) => one.tokenId === tokenId)
    return { owner: principalName, renewers: made[0].renewers.map((one) => one.principalName), left }
  },
}

console.log(JSON.stringify(await tasks[task](), asText))
