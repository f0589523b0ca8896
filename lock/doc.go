// Package lock implements distributed locks in Redis. It uses the keys, fields,
// channels and messages of Redisson 3.17 and later, so that Java and Go programs can
// share locks.
//
// A [Locker] represents one process. It returns locks by kind and name. A lock that is
// held is a value, a [*Hold]:
//
//	locker := lock.New(rdb)
//	defer locker.Close()
//
//	hold, err := locker.Reentrant("orders").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return work(hold.Context())
//
// [Do] does the same in one call, and [Lead] repeats it for the life of a process.
//
// # Guarantees of a lock with a lease
//
// Redis deletes a lock when its lease is over, because a holder that died cannot be
// distinguished from a slow one. While a hold exists, a watchdog renews it every third
// of the lease. As long as the process runs, the clocks of both machines run at the
// same speed to within 1%, and Redis loses no data, two guarantees hold:
//
//   - From the return of Lock until Unlock is called or the hold's context ends, no
//     other owner holds the lock.
//   - If a holder dies, the lock is free after at most one lease.
//
// A hold counts its lease from before the call was sent, so that it ends here before it
// ends in Redis. A missing reply counts as a failed renewal.
//
// # Limits
//
// A process can be stopped for longer than its lease between a check of the context
// and a write to a database. A machine can be suspended, which its monotonic clock does
// not show. A write can be delayed in the network. Redis can lose a lock: if a master
// fails before a replica has it (WithReplicas makes this less likely), if it restarts
// without persistence, or if it evicts keys (use noeviction for locks). In all these
// cases two processes believe that they hold the lock. So a lock without a fencing
// token can prevent duplicate work, but must not be relied on where duplicate work
// would do harm.
//
// # Fencing tokens
//
// A [Locker.Fenced] lock numbers its holds: each [Hold.Token] is larger than all
// earlier ones. Send it with every write, and let the resource reject writes with a
// smaller token than it has seen. In SQL:
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// If no row is updated, another process has taken over, and the work must stop. The
// resource must also record the token of a read that precedes a write, as the example
// of [Locker.Fenced] shows. Tokens keep increasing even if Redis has lost the last one,
// because each is at least the server's clock.
//
// # Owners
//
// A goroutine has no identity, and the work of a request may move between goroutines,
// so ownership is explicit. Each acquisition has its own owner, and acquiring a lock
// again while holding it blocks. To acquire a lock again, use [Hold.Reenter], or
// [WithOwner] with [Hold.Owner].
//
// # Waiting
//
// A waiter subscribes to the lock's channel and tries again when the server has
// confirmed the subscription. Then it waits for a message, for the end of the holder's
// lease, or for a random part of the poll interval (WithPollInterval). The waiters of
// one process queue locally for each name, so that a thousand waiters cause Redis the
// load of one. After 16 consecutive local handovers a process waits for 10 ms if other
// processes wait. In a cluster, channels are sharded if the servers support it; see
// [WithChannels].
//
// # Lost replies
//
// Each call sends a script at most once, whatever the retry settings of the client.
// Executing a script twice has no further effect: counts are absolute, and semaphores
// leave a mark for each call. If a reply is lost, an acquisition is undone in the
// background, an unlock is sent again, and a waiter tries again with the same owner.
//
// # Differences from Redisson
//
//   - A write lock that is acquired again keeps its lease instead of adding to it.
//   - A writer that becomes a reader wakes the waiting readers.
//   - A partial unlock does not change the lease.
//   - Waiters of a fair lock also record that they are alive and how long they wait, so
//     that dead ones are skipped within seconds, and those who give up at once.
//   - Times are those of the server, not of the client.
//   - Unlocks leave no latch key: an owner that is used only once needs none.
//   - A group of values leaves no fields of dead owners, and one owner cannot hold a
//     value twice as part of two groups.
//   - Redisson's spin locks, which do not publish releases, should not share a name with
//     locks of this package.
//
// Everything else is identical: testdata/redisson contains the data that Redisson 3.17,
// 3.52 and 4.7 write to Redis, and the tests compare it.
//
// The package is independent of HTTP, configuration and logging. It needs Redis 6.2 or
// Valkey 7.2, and permission for PUBLISH and SUBSCRIBE on the channels (in a cluster
// SPUBLISH and SSUBSCRIBE).
package lock
