// Runs before each commit, in the transaction that makes the change; writes at most one node, with all of its changes.
// $tx: what the transaction changes, as APOC gives it.
// $nodes: watched labels, each with its key property; $types: watched relationship types; $limit: changes that are
// told one by one. Nodes and relationships that are gone have neither labels nor properties: what they had is in
// $tx.removedLabels and $tx.removedNodeProperties. Of a node that joins or leaves a label, or gets another key, the
// relationships count as changed: along them it is found from now on, or no longer.
WITH apoc.map.fromPairs([n IN $tx.createdNodes | [elementId(n), true]]) AS new,
     apoc.map.fromPairs([n IN $tx.deletedNodes | [elementId(n), true]]) AS gone
WITH new, gone,
     apoc.map.fromPairs([label IN keys($nodes) | [label, apoc.map.fromPairs(
       [x IN coalesce($tx.assignedNodeProperties[$nodes[label]], []) + coalesce($tx.removedNodeProperties[$nodes[label]], [])
        WHERE x.old IS NOT NULL | [elementId(x.node), x.old]])]]) AS before,
     $tx.createdNodes
       + apoc.coll.flatten([name IN keys($tx.assignedNodeProperties) | [x IN $tx.assignedNodeProperties[name] | x.node]])
       + apoc.coll.flatten([label IN keys($tx.assignedLabels) | $tx.assignedLabels[label]]) AS written,
     apoc.coll.flatten([name IN keys($tx.removedNodeProperties) | [x IN $tx.removedNodeProperties[name] | x.node]])
       + apoc.coll.flatten([label IN keys($tx.removedLabels) | $tx.removedLabels[label]]) AS stripped,
     [n IN apoc.coll.toSet(apoc.coll.flatten([label IN keys($nodes) |
        coalesce($tx.assignedLabels[label], []) + coalesce($tx.removedLabels[label], [])
        + [x IN coalesce($tx.assignedNodeProperties[$nodes[label]], []) + coalesce($tx.removedNodeProperties[$nodes[label]], [])
           WHERE coalesce(x.old <> x.new, true) | x.node]]))
      WHERE new[elementId(n)] IS NULL AND gone[elementId(n)] IS NULL] AS moved,
     $tx.createdRelationships + $tx.deletedRelationships
       + apoc.coll.flatten([name IN keys($tx.assignedRelationshipProperties) |
           [x IN $tx.assignedRelationshipProperties[name] | x.relationship]])
       + apoc.coll.flatten([name IN keys($tx.removedRelationshipProperties) |
           [x IN $tx.removedRelationshipProperties[name] | x.relationship]]) AS relationships
WITH *, reduce(sum = 0, n IN moved | sum + apoc.node.degree(n)) > $limit AS crowded
WITH gone, before, crowded,
     [n IN apoc.coll.toSet(written + [n IN stripped WHERE gone[elementId(n)] IS NULL]) WHERE any(l IN labels(n) WHERE l IN keys($nodes))] AS nodes,
     [r IN apoc.coll.toSet(relationships + CASE WHEN crowded THEN [] ELSE
         apoc.coll.flatten([n IN moved | [(n)-[r]-() | r]]) END) WHERE type(r) IN $types] AS relationships,
     [label IN keys($tx.removedLabels) WHERE label IN keys($nodes)] AS left
WHERE size(nodes) + size(relationships) + size(left) > 0
WITH gone, before, crowded, nodes, relationships, left, crowded OR
     size(nodes) + size(relationships) + reduce(sum = 0, label IN left | sum + size($tx.removedLabels[label])) > $limit AS many
WITH many, CASE WHEN many THEN
       [label IN apoc.coll.toSet(left + apoc.coll.flatten([n IN nodes | [l IN labels(n) WHERE l IN keys($nodes)]])) | [label, []]]
     ELSE
       [label IN keys($nodes) WHERE label IN left OR any(n IN nodes WHERE label IN labels(n)) | [label, apoc.coll.toSet(
         [value IN
           apoc.coll.flatten([n IN nodes WHERE label IN labels(n) | [coalesce(n[$nodes[label]], ''), before[label][elementId(n)]]])
           + apoc.coll.flatten([n IN coalesce($tx.removedLabels[label], []) | [before[label][elementId(n)],
               CASE WHEN gone[elementId(n)] IS NULL THEN n[$nodes[label]] END]])
          WHERE value IS NOT NULL])]]
     END AS changedNodes,
     CASE WHEN many THEN
       [type IN CASE WHEN crowded THEN $types ELSE apoc.coll.toSet([r IN relationships | type(r)]) END | [type, []]]
     ELSE
       [type IN apoc.coll.toSet([r IN relationships | type(r)]) | [type, apoc.coll.toSet(apoc.coll.flatten(
         [r IN relationships WHERE type(r) = type | apoc.coll.flatten(
           [n IN [startNode(r), endNode(r)] | apoc.coll.flatten(
             [label IN keys($nodes) |
               [value IN [before[label][elementId(n)],
                  CASE WHEN gone[elementId(n)] IS NULL AND (label IN labels(n) OR n IN coalesce($tx.removedLabels[label], []))
                  THEN n[$nodes[label]] END]
                WHERE value IS NOT NULL | {label: label, value: value}]])])]))]]
     END AS changedRelationships
// Neo4j gives the elementId of a deleted node to another one: the note has an id of its own.
CREATE (:RefresherChange {id: randomUUID(), at: timestamp(), changes: apoc.convert.toJson(
  {bulk: many, nodes: changedNodes, relationships: changedRelationships})})
