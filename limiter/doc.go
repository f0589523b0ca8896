// Package limiter implements rate limits: it decides whether a request may pass
// all of its limits, in one atomic step, and refunds the permits it took.
//
// It is independent of HTTP, configuration and logging. Time is the time of the
// store.
//
// # Glossary
//
// These terms have the same meaning everywhere in Weir.
//
//   - rate: a number of permits per window of time ("5/1h").
//   - limit: a named rate together with the algorithm that enforces it.
//   - key: the entity that is counted, as 16 bytes; [KeyOf] makes it by hashing a
//     value from the request, so that the value itself never reaches a store.
//   - claim: a request for some permits of one limit under one key.
//   - cost: the number of permits of a claim; 1 by default.
//   - decision: the result for all claims of one request: all granted, or none.
//   - group: claims of a decision that are decided for themselves, if the request, which is group 0,
//     was granted. They refuse nothing.
//   - outcome: the part of a decision about one claim.
//   - permit: a unit of a rate; a [Permit] identifies those of one decision, for a
//     refund. A permit expires when it no longer counts, for example one window after
//     it was taken.
//   - capacity: the number of permits of an unused key.
//   - scope: whether the clients of a store count together or each by itself.
//   - client: one of several processes that use the same store.
//   - store: where counts are kept. [Memory] is for one process; package redisstore
//     shares counts between processes.
//   - window: the length of time over which a rate counts.
//   - wait: the time until the same claim would be granted, without other requests.
//   - horizon: the time after its last permit until a key has no state left.
//   - value: what a Distinct limit counts: the different values used with a key.
//   - subject: what permits of a Noted limit are noted under, beside their key, until they expire.
//     [AdminStore.Return] returns all permits of a subject.
//   - note: the permits that are noted under one subject.
//   - open: a permit that was taken, and neither refunded nor returned nor expired.
//   - confirmed subject: one of which permits were returned under a Conversion limit, within its window.
//   - step: one of the growing pauses of a Cooldown.
//   - lease: the time a concurrent permit is held without renewal.
//   - key status: the state of a key under a limit, for operators ([KeyStatus]).
//   - charge: to take permits that a request has cost more than was known, whatever is left
//     ([AdminStore.Charge]).
//   - debt: the permits that a key has taken beyond the capacity, by charges.
//   - ban: a time during which all claims of a key are refused.
//   - wait queue: the queue in which callers wait for permits of a key ([WaitQueue]).
//   - permit log: the list of the permits that a key has taken, which some algorithms
//     keep. The others count.
//   - mark: a record that a permit was refunded.
//   - share: the part of a rate that one of several processes may grant while the
//     shared store is unreachable.
//   - change: an action of an operator on a key under some limits.
//   - sketch: approximate counts of the most frequent keys, its heavy hitters, in
//     bounded memory.
//   - report: a message to a shared store about permits that were granted while it was
//     unreachable.
//   - mirror: the last known state of a key in another store ([Memory.Mirror]), for
//     deciding while that store is unreachable.
//
// A refusal is a result, not an error: an error always means that it is unknown
// what was taken.
//
// # Guarantees
//
// Every store guarantees, and package limitertest checks:
//
//   - All or none: a decision takes every claim or nothing, whatever the
//     algorithms and keys, and has the limits that refused and the time after which
//     all claims would be granted.
//   - The bounds of [Algorithm], by the store's clock in whole milliseconds, for
//     any number of concurrent callers. A token bucket never grants more than its
//     rate in any window, nor does a sliding log.
//   - Waits are exact: without other requests, a retry after the wait is granted, and
//     one a millisecond earlier is not. Above 128 entries for a key, logs merge
//     entries, and a permit may expire up to 1/64 of the window late.
//   - Refunds are idempotent: Refund returns exactly what a decision took, however
//     often it is called, and nothing that has already expired.
//   - A permit that is noted is returned at most once, by its subject or by its ID. What cannot
//     be noted, because there are too many notes, expires as other permits do.
//   - A limit that changes its rate keeps what was taken; one that changes its
//     algorithm, or its scope where there are several clients, starts from zero, and so may a
//     Conversion limit that changes its window.
//   - A clock that is set back never makes a wait longer than the horizon: what was
//     taken later counts as taken now, from the first look on, granted or not. A ban
//     lasts until its time by the new clock.
//
// # Which algorithm
//
//	            any window holds at most   state of a key          refusals until
//	token_bucket    1 x rate               ≤ 128 entries, ≤ 4 KB   the n-th permit is a window old
//	sliding_log     1 x rate               the same, packed        the n-th permit is a window old
//	fixed_window    2 x rate               one counter             the window is over
//	sliding_window  2 x rate, mostly ~1 x  two counters            the previous window has no weight
//	gcra            rate + burst           one number              enough permits are available again
//	concurrent      rate held at a time    one entry a permit      a permit is refunded or expires
//	distinct        rate values            ≤ 3 entries a value     the n-th value is a window unused
//	cooldown        one a step             ≤ 32 entries            the step is over
//	conversion      rate + what confirmed  ≤ 62 buckets, ≤ 0.6 KB  enough is returned, or a window old
//	                subjects allow, open
package limiter
