// Package cluster makes several proxies behave as one: each knows which others
// there are and what they serve, and they take up a new configuration one after
// the other, all under the same number.
//
// # In Redis
//
// All of it lies under PREFIX:{cluster}: and so in one slot of a cluster.
//
//	nodes    zset  id of a node: when it was heard last, in milliseconds
//	members  hash  id of a node: what it says of itself, as JSON (Member)
//	config   hash  number, hash and node of the configuration taken up last
//	limits   hash  ROUTE.LIMIT: what the limit is there, as JSON (Definition)
//	removed  zset  ROUTE.LIMIT: when the limit left the definitions, in milliseconds
//	reload         the lock (package lock) that a reload holds
//
// Times are Redis's. A node that is silent for ten seconds is no longer among
// the nodes. What is known of configurations outlives the longest window of a
// limit, and is kept on by every sign of life.
//
// # What it promises
//
// One configuration has one number, whichever nodes take it up, and a later one a
// higher. Number and definitions are written in one step, and only if nobody has
// published since the writer looked: a node that was stopped in the middle of
// its turn writes nothing when it goes on.
//
// A node that cannot ask Redis takes up its file all the same, and is numbered
// when Redis is back; if the others have moved on meanwhile, it does not put its
// own in the place of theirs.
package cluster
