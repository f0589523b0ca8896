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
//	push     hash  the push that is under way, and what nodes say of it
//	history  list  what was pushed, the last first (Entry)
//	pushes         the channel by which nodes hear that there is something to look at
//	reload         the lock (package lock) that a reload holds
//	lead           the lock that the leader holds
//	leader   hash  token, node, since: who took the lead last
//	tasks    hash  name of a task: its last run, as JSON (Run)
//	minute:N hash  id of a node: what it counted in minute N since 1970, as JSON
//	minutes  zset  minutes to be added up: when a report of them came last
//	statistics:N   what all counted in minute N, as JSON
//	questions      the channel by which one node asks all others what they have seen
//	replies:ID     list  what they reply, for five seconds
//	audit    stream  what operators did, as JSON (AuditEntry); for 30 days
//	alerts   list  alerts that wait to be sent, as JSON (Alert)
//	alerted:...    what was told of lately
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
// When Redis comes back empty, or as an older replica of itself, the nodes give it
// back what they still know (Restore): the number, so that generations never go
// back, and what was pushed, with its history.
//
// What is pushed is served by all nodes or by none (Push). A push is its own lock:
// while one is under way no other begins, and the next one is told who pushes. It
// lives by the signs of the node that pushes, and when that dies it is forgotten;
// nothing is changed before the one step that decides. Nodes follow what is
// decided, whenever they hear of it (Follow). A request is served by one
// generation from its beginning to its end.
//
// A node that cannot ask Redis takes up its file all the same, and is numbered
// when Redis is back; if the others have moved on meanwhile, it does not put its
// own in the place of theirs.
//
// # The leader
//
// What is to be done once for all nodes is a Task, and one node does them all: the
// Leader. It holds a lock, so that two do not work at the same time, and has a
// token, so that it does no harm when two do all the same: whatever a task changes
// it changes by a script that first compares the token with that of whoever took
// the lead last (fence.lua). A leader that was stopped beyond its lease, or cut
// off, is turned away there. Tasks are such that what one leader began and the
// next does again comes to the same.
//
// A node that died is forgotten by the next sign of life of any other. What it
// held of limits on concurrent requests comes back with its lease and not sooner:
// a silent node may be cut off and still at work for the clients it has.
//
// A process that shares nothing leads itself, and keeps in memory what is said
// above to be in Redis.
package cluster
