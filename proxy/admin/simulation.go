package admin

import (
	"io"

	"github.com/weir-proxy/weir/proxy"
)

// A SimulateQuery is an access log to replay with the current configuration, and optionally
// with another one.
type SimulateQuery struct {
	Log    io.Reader // gzipped or not; nil: the access log of the node itself
	Other  string    // YAML of another configuration; empty for none
	Host   string    // host of requests without one in the log
	Fields []string  // names of fields of JSON lines: WHAT=NAME
	Top    int       // number of top keys per limit; 10 if 0
}

// A Simulation is the result of a replay.
type Simulation struct {
	Node      string `json:"node"`
	Lines     int64  `json:"lines"`
	Requests  int64  `json:"requests"`
	Others    int64  `json:"others"`       // lines that are not requests
	Malformed int64  `json:"malformed"`    // lines that cannot be read
	Late      int64  `json:"late"`         // requests replayed later than their time
	Untimed   int64  `json:"untimed"`      // requests without a duration
	Hostless  int64  `json:"hostless"`     // requests without a host
	TooMany   int64  `json:"answered_429"` // requests with the logged status 429
	TookMS    int64  `json:"took_ms"`
	// Generation is the current generation, and Result its result; Against is the result of
	// the other configuration, if there is one.
	Generation int64              `json:"generation"`
	Result     proxy.ReplayTally  `json:"result"`
	Against    *proxy.ReplayTally `json:"against,omitempty"`
	// Differences compares the routes and limits of both.
	Differences []SimulatedDifference `json:"differences,omitempty"`
	Notes       []string              `json:"notes"` // limitations of the numbers, and what to log
}

// A SimulatedDifference compares a limit, or with Limit empty a route.
type SimulatedDifference struct {
	Route string        `json:"route"`
	Limit string        `json:"limit,omitempty"`
	A     SimulatedSide `json:"a"` // the current configuration
	B     SimulatedSide `json:"b"` // of the other
}

// A SimulatedSide is the result of one configuration.
type SimulatedSide struct {
	There    bool     `json:"there"` // the configuration has this route or limit
	Rates    []string `json:"rates"`
	Passed   int64    `json:"passed"`
	Refused  int64    `json:"refused"`
	Shadowed int64    `json:"shadowed"`
	Unknown  int64    `json:"unknown"`
}
