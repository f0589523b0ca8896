// Package cluster coordinates several proxies through Redis: membership, a
// common configuration with a common generation number, pushes, leader
// election, statistics, alerts and the audit trail.
//
// # In Redis
//
// All keys begin with PREFIX:{cluster}: and so are in one slot of a Redis
// Cluster.
//
//	nodes    zset  id of a node: time of its last heartbeat, in milliseconds
//	members  hash  id of a node: its description, as JSON (Member)
//	lost     hash  id of a node that ended without leaving: its last heartbeat and description; for an hour
//	config   hash  number, hash and node of the latest configuration
//	limits   hash  ROUTE.LIMIT: definition of the limit, as JSON (view.Limit)
//	removed  zset  ROUTE.LIMIT: time at which the limit was removed, in milliseconds
//	push     hash  the push in progress, and the answers of the nodes
//	history  list  pushes, newest first (Entry)
//	pushes         channel for notifications of nodes
//	reload         lock (package lock) held during a reload
//	lead           lock held by the leader
//	leader   hash  token, node, since: the latest leader
//	tasks    hash  name of a task: its last run, as JSON (Run)
//	minute:N hash  id of a node: its counts in minute N since 1970, as JSON
//	minutes  zset  minutes to be summed: time of their last report
//	statistics:N   sums of minute N, as JSON
//	questions      channel for questions of one node to all others
//	replies:ID     list  their replies, for five seconds
//	audit    stream  actions of operators, as JSON (AuditEntry); for 30 days
//	once:... changes of keys with an Idempotency-Key, and the responses to them; for a day
//	directives hash  bans of networks, maintenance, and plans of keys: when each ends, and the directive, as JSON
//	alerts   list  alerts to be sent, as JSON (Alert)
//	alerted:...    recent alerts, for deduplication
//
// Times are by Redis's clock. A node without a heartbeat for ten seconds is no
// longer a member. The keys about configurations expire later than the longest
// window of a limit; every heartbeat extends them.
//
// # Guarantees
//
// A configuration has the same number on all nodes, and a later one has a higher
// number. Number and definitions are written in one step, and only if no other
// node has published in between: a node that was suspended while it held the
// reload lock writes nothing when it resumes.
//
// If Redis comes back empty, or as an older replica, the nodes restore what they
// know (Restore): the number, so that generations never decrease, and the pushed
// configuration with its history.
//
// A pushed configuration is served by all nodes or by none (Push, a two-phase
// commit). Only one push can be in progress; the error of a second one names the
// author of the first. A push expires two seconds after the last sign of the pushing
// node; nothing is changed before the single step that commits it. Nodes follow committed pushes as soon as
// they learn of them (Follow). A request is served by one generation from
// beginning to end.
//
// A node that cannot reach Redis loads its file anyway, and gets a number when
// Redis is back; if the other nodes have loaded something newer by then, it does
// not replace that.
//
// # The leader
//
// Work that is done once for all nodes is a Task, and one node, the Leader, runs
// all tasks. It holds a lock, so that normally only one node leads, and a fencing
// token for the case that two nodes believe they lead: a task changes data only by
// scripts that first compare the token with that of the latest leader (fence.lua).
// A leader that was suspended for longer than its lease, or partitioned, is
// rejected there. Tasks are idempotent: a run that one leader began and the next
// repeats has the same result.
//
// A dead node is removed by the next heartbeat of any other, which remembers it as
// lost for an hour; a node that stops leaves. Its permits of concurrent limits return when their lease ends, and not sooner: a node without
// heartbeats may be partitioned and still serve its clients.
//
// A single process (store: memory) is always its own leader, and keeps this
// state in memory.
package cluster
