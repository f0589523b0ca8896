package admin

import (
	"io"

	"github.com/weir-proxy/weir/proxy"
)

// A SimulateQuery is an access log, and what it is to be replayed through: what the node
// serves, and another configuration beside it.
type SimulateQuery struct {
	Log    io.Reader // gzipped or not; nil: the access log of the node itself
	Other  string    // YAML, to be compared with what is served; empty for none
	Host   string    // of requests whose log does not tell it
	Fields []string  // which field of a JSON line tells WHAT: WHAT=NAME
	Top    int       // keys of each limit to tell of; 10 when 0
}

// A Simulation is what was read of an access log, and what the configurations would have
// done with it.
type Simulation struct {
	Node      string `json:"node"`
	Lines     int64  `json:"lines"`
	Requests  int64  `json:"requests"`
	Others    int64  `json:"others"`       // lines that are no requests
	Malformed int64  `json:"malformed"`    // lines that cannot be read
	Late      int64  `json:"late"`         // requests taken later than they came
	Untimed   int64  `json:"untimed"`      // of which the log does not say how long they took
	Hostless  int64  `json:"hostless"`     // nor for which host they were
	TooMany   int64  `json:"answered_429"` // that were answered with 429 when they were logged
	TookMS    int64  `json:"took_ms"`
	// Generation is of the configuration that is served, and Result what it would have
	// done; Against is what the other one would have, if there is one.
	Generation int64              `json:"generation"`
	Result     proxy.ReplayTally  `json:"result"`
	Against    *proxy.ReplayTally `json:"against,omitempty"`
	// Differences are the routes and limits of both, side by side.
	Differences []SimulatedDifference `json:"differences,omitempty"`
	Notes       []string              `json:"notes"` // what the figures do not tell, and what to log
}

// A SimulatedDifference is a limit, or with Limit empty a route, in two configurations.
type SimulatedDifference struct {
	Route string        `json:"route"`
	Limit string        `json:"limit,omitempty"`
	A     SimulatedSide `json:"a"` // of what is served
	B     SimulatedSide `json:"b"` // of the other
}

// A SimulatedSide is what one configuration would have done.
type SimulatedSide struct {
	There    bool     `json:"there"` // the configuration has this route or limit
	Rates    []string `json:"rates"`
	Passed   int64    `json:"passed"`
	Refused  int64    `json:"refused"`
	Shadowed int64    `json:"shadowed"`
	Unknown  int64    `json:"unknown"`
}
