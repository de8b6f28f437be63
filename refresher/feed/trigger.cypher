// Runs before each commit, in the transaction that makes the change; writes at most one node, with all of its changes.
// $nodes: watched labels, each with its key property; $types: watched relationship types; $limit: changes that are
// told one by one. Nodes and relationships that are gone have neither labels nor properties: what they had is in
// $removedLabels and $removedNodeProperties.
WITH apoc.map.fromPairs([n IN $deletedNodes | [elementId(n), true]]) AS gone,
     apoc.map.fromPairs([label IN keys($nodes) | [label, apoc.map.fromPairs(
       [x IN coalesce($assignedNodeProperties[$nodes[label]], []) + coalesce($removedNodeProperties[$nodes[label]], [])
        WHERE x.old IS NOT NULL | [elementId(x.node), x.old]])]]) AS before,
     $createdNodes
       + apoc.coll.flatten([name IN keys($assignedNodeProperties) | [x IN $assignedNodeProperties[name] | x.node]])
       + apoc.coll.flatten([label IN keys($assignedLabels) | $assignedLabels[label]]) AS written,
     apoc.coll.flatten([name IN keys($removedNodeProperties) | [x IN $removedNodeProperties[name] | x.node]])
       + apoc.coll.flatten([label IN keys($removedLabels) | $removedLabels[label]]) AS stripped,
     $createdRelationships + $deletedRelationships
       + apoc.coll.flatten([name IN keys($assignedRelationshipProperties) |
           [x IN $assignedRelationshipProperties[name] | x.relationship]])
       + apoc.coll.flatten([name IN keys($removedRelationshipProperties) |
           [x IN $removedRelationshipProperties[name] | x.relationship]]) AS relationships
WITH gone, before,
     [n IN apoc.coll.toSet(written + [n IN stripped WHERE gone[elementId(n)] IS NULL]) WHERE any(l IN labels(n) WHERE l IN keys($nodes))] AS nodes,
     [r IN apoc.coll.toSet(relationships) WHERE type(r) IN $types] AS relationships,
     [label IN keys($removedLabels) WHERE label IN keys($nodes)] AS left
WHERE size(nodes) + size(relationships) + size(left) > 0
WITH gone, before, nodes, relationships, left,
     size(nodes) + size(relationships) + reduce(sum = 0, label IN left | sum + size($removedLabels[label])) > $limit AS many
WITH many, CASE WHEN many THEN
       [label IN apoc.coll.toSet(left + apoc.coll.flatten([n IN nodes | [l IN labels(n) WHERE l IN keys($nodes)]])) | [label, []]]
     ELSE
       [label IN keys($nodes) WHERE label IN left OR any(n IN nodes WHERE label IN labels(n)) | [label, apoc.coll.toSet(
         [value IN
           apoc.coll.flatten([n IN nodes WHERE label IN labels(n) | [n[$nodes[label]], before[label][elementId(n)]]])
           + apoc.coll.flatten([n IN coalesce($removedLabels[label], []) | [before[label][elementId(n)],
               CASE WHEN gone[elementId(n)] IS NULL THEN n[$nodes[label]] END]])
          WHERE value IS NOT NULL])]]
     END AS changedNodes,
     CASE WHEN many THEN
       [type IN apoc.coll.toSet([r IN relationships | type(r)]) | [type, []]]
     ELSE
       [type IN apoc.coll.toSet([r IN relationships | type(r)]) | [type, apoc.coll.toSet(apoc.coll.flatten(
         [r IN relationships WHERE type(r) = type | apoc.coll.flatten(
           [n IN [startNode(r), endNode(r)] | apoc.coll.flatten(
             [label IN keys($nodes) |
               [value IN [before[label][elementId(n)],
                  CASE WHEN gone[elementId(n)] IS NULL AND label IN labels(n) THEN n[$nodes[label]] END]
                WHERE value IS NOT NULL | {label: label, value: value}]])])]))]]
     END AS changedRelationships
// Neo4j gives the elementId of a deleted node to another one: the note has an id of its own.
CREATE (:RefresherChange {id: randomUUID(), at: timestamp(), changes: apoc.convert.toJson(
  {bulk: many, nodes: changedNodes, relationships: changedRelationships})})
