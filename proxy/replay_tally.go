package proxy

import (
	"time"
)

// A ReplayTally is what came of the requests of a Replay.
type ReplayTally struct {
	Requests int64     `json:"requests"`
	From     time.Time `json:"from,omitzero"` // of the first request
	To       time.Time `json:"to,omitzero"`   // and of the last
	Passed   int64     `json:"passed"`
	Refused  int64     `json:"refused"` // by limits
	Keys     int       `json:"keys"`    // counted at the end, all limits and rates together
	// Unmatched are requests that no route takes, and Rejected those that are refused
	// before any limit is asked, by reason.
	Unmatched map[string]int64 `json:"unmatched,omitempty"`
	Routes    []RouteTally     `json:"routes"`
	// Step is the length of one step of every series; the first begins at Start.
	Start time.Time     `json:"start,omitzero"`
	Step  time.Duration `json:"step_ns"`
}

// A RouteTally is what came of the requests of a route.
type RouteTally struct {
	Name     string           `json:"name"`
	Requests int64            `json:"requests"`
	Passed   int64            `json:"passed"`
	Refused  int64            `json:"refused"`
	Rejected map[string]int64 `json:"rejected,omitempty"`
	Listed   map[string]int64 `json:"listed,omitempty"` // by the list that decided
	Exempt   int64            `json:"exempt"`           // passed without being counted: a list or a preflight
	Waited   int64            `json:"waited"`           // waited for a permit
	Repeated int64            `json:"repeated"`         // repeats that do not count
	Returned int64            `json:"returned"`         // gave back what they took
	Banned   int64            `json:"banned"`           // refusals that began a ban
	Unlisted int64            `json:"unlisted"`         // not looked up in some list, whose key the log does not tell
	Limits   []LimitTally     `json:"limits"`
	Series   ReplaySeries     `json:"series"`
}

// A LimitTally is what a limit said.
type LimitTally struct {
	Name      string   `json:"name"`
	Key       string   `json:"key"`
	Mode      string   `json:"mode"`
	Algorithm string   `json:"algorithm"`
	Rates     []string `json:"rates"`
	Passed    int64    `json:"passed"`
	Refused   int64    `json:"refused"`
	Shadowed  int64    `json:"shadowed"` // would have been refused
	Skipped   int64    `json:"skipped"`  // the limit did not apply
	Unknown   int64    `json:"unknown"`  // the log does not tell the key
	// Missing are the places that the log does not tell of: header:X-Phone.
	Missing []string `json:"missing,omitempty"`
	// Top are the keys that were refused most, the most first, masked. When there were
	// too many to count each, a count may be too low by up to TopError.
	Top      []ReplayKey  `json:"top"`
	TopError int64        `json:"top_error"`
	Series   ReplaySeries `json:"series"`
}

// A ReplayKey is a key and how often it was refused.
type ReplayKey struct {
	Key     string `json:"key"`
	Refused int64  `json:"refused"`
}

// A ReplaySeries is what happened in each step of time.
type ReplaySeries struct {
	Passed  []int64 `json:"passed"`
	Refused []int64 `json:"refused"` // or would have been
}
