/* KafkaJS calls its own assigner by a name that no other library has; this one is called as theirs. */
'use strict'

const { AssignerProtocol } = require('kafkajs')

const { MemberAssignment, MemberMetadata } = AssignerProtocol

const roundrobin = ({ cluster }) => ({
  name: 'roundrobin',
  version: 0,
  protocol: ({ topics }) => ({
    name: 'roundrobin',
    metadata: MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) }),
  }),
  assign: async ({ members, topics }) => {
    const shares = new Map(members.map(({ memberId }) => memberId).sort().map((id) => [id, {}]))
    const ids = [...shares.keys()]
    let turn = 0
    for (const each of [...topics].sort()) {
      for (const { partitionId } of cluster.findTopicPartitionMetadata(each)) {
        const share = shares.get(ids[turn++ % ids.length])
        share[each] = [...(share[each] || []), partitionId]
      }
    }
    return ids.map((memberId) => ({
      memberId,
      memberAssignment: MemberAssignment.encode({
        version: 0, assignment: shares.get(memberId), userData: Buffer.alloc(0),
      }),
    }))
  },
})

module.exports = { roundrobin }
