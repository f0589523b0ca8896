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
//   - store: where counts live. [Memory] is one process; package redisstore
//     shares counts between processes.
//   - window: the length of time over which a rate counts.
//   - wait: how long until the same claim would pass if nobody else came.
//
// A refusal is an answer, not an error: an error always means that it is not
// known what was taken.
package limiter
