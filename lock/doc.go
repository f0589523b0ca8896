// Package lock implements distributed locks in Redis. It uses the same keys, fields, channels
// and messages as Redisson 3.17 and later, so that Java and Go services can share locks.
//
// A [Locker] represents one process. It creates locks by kind and name; a held lock is a
// [*Hold]:
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
// [Do] does the same in one call, [Lead] repeatedly until its context ends.
//
// # Guarantees
//
// A lock in Redis expires when its lease is over, because a holder that died cannot be
// distinguished from a slow one. Until Unlock, a watchdog renews the lease every third of it.
// As long as the process runs, the clocks of both machines run at the same speed to within
// one per cent, and Redis loses no data, two things hold:
//
//   - From the return of Lock until Unlock, or until the hold's context ends, no other
//     owner holds the lock.
//   - If a holder dies, the lock is released after at most one lease.
//
// A hold counts its lease from before the call was sent, so that it ends for the process
// before it ends in Redis. A renewal without a reply counts as failed.
//
// # Limitations
//
// A process can be suspended for longer than its lease between a check of the context and a
// write to a database; a machine can sleep, which its monotonic clock does not measure; a
// write can be delayed in the network. Redis can lose a lock: in a failover before it was
// replicated ([WithReplicas] makes that less likely), in a restart without persistence, or by
// eviction of keys (use noeviction). In all these cases two processes believe that they hold
// the lock. So without fencing tokens, use a lock only to avoid duplicate work, not where
// duplicate work would do harm.
//
// # Fencing tokens
//
// A [Locker.Fenced] lock numbers its holds: each [Hold.Token] is larger than all earlier
// ones. Send the token with every write, and let the resource reject a token that is smaller
// than one it has seen. In SQL:
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// If no row is updated, another process has the lock. The resource must also record the token
// of a reader that will write later, as the example of [Locker.Fenced] shows. Tokens increase
// even if Redis has lost the last one, because they are not smaller than its clock.
//
// # Owners
//
// Goroutines have no identity, and the work of a request moves between goroutines, so
// ownership is explicit: each acquisition is a new owner, and a second acquisition waits for
// the first. To acquire a lock again, use [Hold.Reenter], or [WithOwner] with [Hold.Owner].
//
// # Waiting
//
// A waiter subscribes to the lock's channel, tries again once the server has confirmed the
// subscription, and then waits for a message, for the end of the holder's lease, or for a
// random part of [WithPoll]'s time. Waiters of one process for the same name are served one
// after another, so that a thousand cost Redis as much as one; after 16 hand-overs in a row
// within the process, it pauses for 10 ms if other processes wait. In a cluster, channels are
// sharded if the servers support it; see [WithChannels].
//
// # Lost replies
//
// Every script is sent at most once for each call, whatever the client's retry settings are,
// and running it twice has no further effect: counts are absolute, and semaphores keep a
// record of calls. If a reply is lost, an acquisition is undone in the background, an unlock
// is repeated, and an attempt of a waiter is repeated for the same owner.
//
// # Differences from Redisson
//
//   - Reentering a write lock keeps its lease instead of extending it.
//   - A downgrade to a read lock notifies waiting readers.
//   - A partial unlock does not change the lease.
//   - Waiters of a fair lock also record heartbeats, so that dead waiters are skipped within
//     seconds.
//   - Times are those of the server, not of the client.
//   - Unlocking leaves no latch key: an owner that is used once needs none.
//   - Spin locks must not use the same names, because they never publish.
//   - A group leaves no fields of dead holders, and one owner cannot hold a value twice as
//     part of two groups.
//
// Everything else is byte for byte the same: testdata/redisson contains the data that
// Redisson 3.17, 3.52 and 4.7 leave in Redis, and the tests compare with it.
//
// The package does not depend on HTTP or configuration, and does not log. It requires Redis
// 6.2 or Valkey 7.2, and permission for PUBLISH and SUBSCRIBE on the channels (SPUBLISH and
// SSUBSCRIBE in a cluster).
package lock
