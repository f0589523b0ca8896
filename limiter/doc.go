// Package limiter decides whether a request may pass under the rates it is
// subject to, and lets the caller give back what it took.
//
// It knows no HTTP, no configuration and no logging: time comes from the store,
// claims go down, a decision comes back.
//
// # Glossary
//
// The words below mean the same thing everywhere in Weir.
//
//   - rate: so many permits in any window of so long ("5/1h").
//   - limit: a named rate together with the algorithm that keeps it.
//   - key: who is counted, as 16 bytes; made from what a client sent by [KeyOf],
//     so that the sent text itself never reaches a store.
//   - claim: a request for some permits of one limit under one key.
//   - cost: how many permits one claim asks for; 1 unless something else is said.
//   - decision: the answer to all claims of one request: all granted, or none.
//   - outcome: the part of a decision that speaks of one claim.
//   - permit: the right to give back what a decision took.
//   - scope: whether the clients of a store count together or each by itself.
//   - client: one process that uses a store which others use too.
//   - store: where counts live. [Memory] is one process; package redisstore
//     shares counts between processes.
//   - window: the length of time over which a rate counts.
//   - wait: how long until the same claim would pass if nobody else came.
//   - horizon: how long after its last permit a key is as new.
//   - value: what a key is used with, where different ones are counted.
//   - step: a pause after a permit, where they grow.
//   - lease: how long a concurrent permit is held without being renewed.
//   - standing: how a key stands under a limit, for people to look at.
//   - ban: a time for which a key has nothing, whatever its rates.
//   - line: where callers wait for their turn at a key ([Line]).
//   - mark: what remembers that a permit was given back.
//   - share: the part of a rate that one of several processes may grant by itself
//     while they cannot count together.
//   - change: what an operator does to a key under some limits.
//   - sketch: counts of the keys that are seen most, with a bounded error.
//   - report: what a store is told afterwards of grants that were made in its
//     place.
//   - note: what another store has said last of a key, kept to go on from without it.
//
// A refusal is an answer, not an error: an error always means that it is not
// known what was taken.
//
// # Guarantees
//
// Of every store, as package limitertest has it:
//
//   - All or none: a decision takes every claim or nothing, whatever the
//     algorithms and keys, and names every limit that refused and the time after
//     which all pass.
//   - The bounds of [Algorithm], by the store's clock in whole milliseconds, for
//     any number of concurrent callers. A token bucket never grants more than its
//     rate in any window, nor does a sliding log.
//   - Waits are exact: who comes back then, alone, passes at the first try, and
//     a millisecond earlier does not. Above 128 entries a key, logs merge
//     entries, and a permit may come back up to 1/64 of the window late.
//   - Given back once: Refund gives back exactly what a decision took, however
//     often it is called, and nothing that has come back by itself.
//   - A limit that changes its rate keeps what was taken; one that changes its
//     algorithm, or its scope where there are several clients, starts anew.
//   - A clock that is set back makes nobody wait longer than the horizon.
//
// # Which algorithm
//
//	            any window holds at most   state of a key          refusals until
//	token_bucket    1 x rate               ≤ 128 entries, ≤ 4 KB   the n-th permit is a window old
//	sliding_log     1 x rate               the same, packed        the n-th permit is a window old
//	fixed_window    2 x rate               one counter             the window is over
//	sliding_window  2 x rate, mostly ~1 x  two counters            the old window has faded
//	gcra            rate + burst           one number              enough has flowed back
//	concurrent      rate held at a time    one entry a permit      a permit is given back
//	distinct        rate values            ≤ 3 entries a value     the n-th value is a window unused
//	cooldown        one a step             ≤ 32 entries            the step is over
package limiter
