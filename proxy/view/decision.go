package view

import "time"

// A DecisionQuery selects requests. Empty fields match all.
type DecisionQuery struct {
	RequestID string
	Route     string // none for requests that no route matched
	Limit     string // a limit that was asked; with Outcome, with that result
	Outcome   string // as Decided.Outcome
	Key       string // hash or id of a key
	Before    time.Time
	N         int // 100 if 0, at most 1000
}

// Decisions are recent decisions, newest first.
type Decisions struct {
	Decisions []Decision `json:"decisions"`
	// Nodes are the nodes that were asked, with the errors of those that did not reply.
	Nodes []NodeAnswer `json:"nodes"`
}

// A Decision is the decision about one request, and the node that made it.
type Decision struct {
	Node string `json:"node"`
	Decided
}

// Decided is what a node decided about one request.
type Decided struct {
	RequestID string    `json:"request_id"` // its first 48 bytes
	At        time.Time `json:"at"`         // when the request arrived
	Route     string    `json:"route,omitempty"`
	Method    string    `json:"method"`
	Path      string    `json:"path"` // its first 96 bytes, redacted as in the log
	Status    int       `json:"status"`
	// Outcome is allowed, refused (by a limit, or for too many new keys), shadow_refused (allowed,
	// but a limit in shadow mode would have refused it), or rejected (not forwarded for another
	// reason).
	Outcome string `json:"outcome"`
	// Summary is a sentence: which limit refused, and when the same request would pass.
	Summary  string          `json:"summary"`
	TookMS   float64         `json:"took_ms"`
	Limits   []DecisionLimit `json:"limits"`         // the limits asked, at most 8, those that decided first
	More     int             `json:"more,omitempty"` // the number of further limits
	List     string          `json:"list,omitempty"` // the list that decided
	NewKeys  string          `json:"new_keys,omitempty"`
	Fallback string          `json:"fallback,omitempty"` // the policy that decided while the store was unreachable
	Upstream string          `json:"upstream,omitempty"`
	Listener string          `json:"listener,omitempty"` // by which another proxy asked: decide/nginx
	Error    string          `json:"error,omitempty"`
	// Challenge is the result if limits with step_up refused: issued, invalid or used (the token), or passed. The
	// API has it in Summary only.
	Challenge string `json:"challenge,omitempty" api:"-"`
	Flags
}

// Flags are properties of a request.
type Flags struct {
	Repeated bool `json:"repeated,omitempty"`  // it repeats one that was counted
	Waited   bool `json:"waited,omitempty"`    // it waited for a permit
	Exempt   bool `json:"exempt,omitempty"`    // no limit applies to it
	BanBegan bool `json:"ban_began,omitempty"` // its refusal started a ban
}

// Facts returns what f says.
func (f Flags) Facts() []string {
	return holding(
		fact{f.Repeated, "repeats a counted request"}, fact{f.Waited, "waited for a permit"},
		fact{f.Exempt, "no limit applied"}, fact{f.BanBegan, "this refusal started a ban"},
	)
}

// A DecisionLimit is the decision of one rate about a request.
type DecisionLimit struct {
	Limit   string `json:"limit"`
	Common  bool   `json:"common,omitempty"` // several routes have one count by the limit
	Rate    string `json:"rate"`             // the name in the log: phone-1h
	Permits string `json:"permits"`          // 5/1h
	Plan    string `json:"plan,omitempty"`   // the plan of the key, which has this rate
	// Result is allowed, refused, shadow_refused, or not_asked if the limit was not evaluated
	// because another limit was known to refuse.
	Result string  `json:"result"`
	Banned bool    `json:"banned,omitempty"`
	Left   *int64  `json:"left,omitempty"`    // nil if unknown
	Amount string  `json:"amount,omitempty"`  // of a budget: Left, as money
	WaitMS float64 `json:"wait_ms,omitempty"` // until the same request would be allowed
	Key    string  `json:"key"`               // the name of the key
	Masked string  `json:"masked,omitempty"`
	Hash   string  `json:"hash,omitempty"` // the hash of the key in the log
	ID     string  `json:"id,omitempty"`   // the key id, see the value of a key query
}

// A TopQuery selects limits. Empty fields match all.
type TopQuery struct {
	Route, Limit string
	Minutes      int // the last minutes including the current one; 0 for all
	N            int // number of keys of each limit; 20 if 0
}

// A Top lists the keys with most requests and with most refusals, by limit.
type Top struct {
	Minutes int          `json:"minutes"`
	Limits  []TopLimit   `json:"limits"` // of all nodes: those with most refusals first
	Nodes   []NodeAnswer `json:"nodes"`  // the nodes that were asked, with the errors of those that did not reply
}

// A TopLimit lists the keys of one limit.
type TopLimit struct {
	Route    string  `json:"route"`
	Limit    string  `json:"limit"`
	Key      string  `json:"key"`      // the name of the key
	Mode     string  `json:"mode"`     // in shadow mode, refused requests only would have been refused
	Requests TopList `json:"requests"` // the keys with most requests
	Refused  TopList `json:"refused"`  // the keys with most refusals
}

// A TopList is a list of keys in descending order of their counts. Of all nodes, it lacks those that may have
// fewer requests than twice the error of their count.
type TopList struct {
	Total int64    `json:"total"` // count of all keys
	Floor int64    `json:"floor"` // maximum count of a key that is not listed
	Keys  []TopKey `json:"keys"`
}

// A TopKey is a key. Its true count is between Count-Error and Count.
type TopKey struct {
	Masked string `json:"masked"`
	Hash   string `json:"hash"` // the hash of the key in the log
	ID     string `json:"id"`   // the key id, see the value of a key query
	Count  int64  `json:"count"`
	Error  int64  `json:"error"`
	// Country is, among the keys of which most was sent, the country of a range of phone numbers.
	Country string `json:"country,omitempty" api:"-"`
}
