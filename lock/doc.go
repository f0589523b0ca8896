// Package lock holds things across processes: locks that live in Redis, with the
// keys, fields, channels and messages of Redisson 3.17 and later, so that a Java
// service and a Go service can wait for each other.
//
// A [Locker] stands for one process. It makes locks by kind and name, and holding
// one is a value, a [*Hold]:
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
// [Do] is these lines as a function, [Lead] repeats them for as long as a process
// lives.
//
// # What a lock with a lease promises
//
// Redis forgets a lock when its lease is over, because nobody else can tell a
// holder that died from one that is slow. While a hold lives, a watchdog renews
// it every third of the lease. As long as the process runs, the clocks of both
// machines run at the same speed to within one per cent, and Redis loses nothing,
// two things hold:
//
//   - From the moment Lock returns until Unlock is called or the hold's context
//     ends, nobody else holds the lock.
//   - When a holder dies, the lock is free at the latest one lease later.
//
// A hold counts its lease from before the call was sent, so that it ends for us
// before it ends for Redis; no answer from Redis counts as bad news.
//
// # What it cannot promise
//
// A process can be stopped for longer than its lease between looking at the
// context and writing to a database; a machine can sleep, which its monotonic
// clock does not see; a write can travel slowly. Redis can lose a lock: when a
// master fails before a replica has it ([WithReplicas] makes that rarer), when
// it restarts without persistence, when it evicts keys (use noeviction for
// locks). In all these cases two processes believe that they hold the lock. So
// a lock without a fence is good for not doing the same work twice, and not good
// enough where doing it twice would do harm.
//
// # The fence
//
// A [Locker.Fenced] lock numbers its holds: each [Hold.Token] is larger than all
// before. Send it along with every write, and let the resource itself refuse what
// comes with a smaller one than it has seen. In SQL:
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// No row updated means that somebody has taken over: give up. The resource must
// also note the token of whoever reads in order to write later, as the example
// of [Locker.Fenced] shows. Tokens go on rising even when Redis has lost the last
// one, because none is below its clock.
//
// # Owners
//
// A goroutine has no identity, and the work of a request moves between
// goroutines, so ownership is explicit: each acquisition is an owner of its own,
// and taking a lock twice in a row waits for itself. To enter a lock again, use
// [Hold.Reenter], or [WithOwner] with [Hold.Owner].
//
// # Waiting
//
// A waiter subscribes to the lock's channel, tries again once the server has
// confirmed that, and then sleeps until it is told, until the lease of the holder
// is over, or for a random part of [WithPollInterval]'s time. In one process the waiters
// for a name come one after another, so that a thousand cost Redis what one
// costs; after 16 turns in a row the process stands back for 10 ms if others
// wait. In a cluster channels are sharded where the servers can; see
// [WithChannels].
//
// # Calls without an answer
//
// Every script is sent at most once for each call, whatever the client's retries
// are, and has no more effect when it runs twice: counts are absolute, and
// semaphores leave a mark. When an answer is lost, an acquisition is undone in
// the background, an unlock asked again, a waiter's attempt repeated in the same
// name.
//
// # Differences from Redisson
//
// A write lock that is entered again keeps its lease instead of adding it. A
// writer that goes on as a reader wakes the waiting readers. A partial unlock
// leaves the lease alone. Waiters of a fair lock also write down that they live,
// so that the dead are passed over in seconds. Times are the server's, not the
// client's. Unlocks leave no latch key: an owner that is used once needs none.
// Spin locks, which never publish, should not share a name with these. A group of
// values leaves no fields of the dead, and one owner does not hold a value twice
// as part of two of them.
//
// All else is the same by the letter: testdata/redisson is what Redisson 3.17,
// 3.52 and 4.7 leave in Redis, and the tests compare.
//
// The package knows no HTTP, no configuration and no logging. Redis 6.2 or
// Valkey 7.2 are needed, and permission for PUBLISH and SUBSCRIBE on the channels
// (in a cluster SPUBLISH and SSUBSCRIBE).
package lock
