package view

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

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
	return Holding(
		Fact{f.Repeated, "repeats a counted request"}, Fact{f.Waited, "waited for a permit"},
		Fact{f.Exempt, "no limit applied"}, Fact{f.BanBegan, "this refusal started a ban"},
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

// Keys returns the keys of both lists, each once: those with most refusals first.
func (l TopLimit) Keys() (keys []TopKey) {
	known := map[string]bool{}
	for _, k := range slices.Concat(l.Refused.Keys, l.Requests.Keys) {
		if !known[k.ID] {
			known[k.ID] = true
			keys = append(keys, k)
		}
	}
	return keys
}

// A TopList is a list of keys in descending order of their counts. Of all nodes, it lacks those that may have
// fewer requests than twice the error of their count.
type TopList struct {
	Total int64    `json:"total"` // count of all keys
	Floor int64    `json:"floor"` // maximum count of a key that is not listed
	Keys  []TopKey `json:"keys"`
}

// Find returns the key with that id; nil if it is not listed.
func (l TopList) Find(id string) *TopKey {
	if i := slices.IndexFunc(l.Keys, func(k TopKey) bool { return k.ID == id }); i >= 0 {
		return &l.Keys[i]
	}
	return nil
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

// An ExplainRequest is a request to explain. It is not sent.
type ExplainRequest struct {
	Method string `json:"method"`
	// URL is an absolute URL, or a path with an optional query. The host of the latter is the field
	// Host of Header, or localhost.
	URL    string              `json:"url"`
	Header map[string][]string `json:"header,omitempty"`
	Body   string              `json:"body,omitempty"`
	// Client is the peer of the connection, 127.0.0.1 if it is not set. If it is a trusted proxy,
	// the header determines the client.
	Client netip.Addr `json:"client,omitzero"`
}

// An Explanation reports what would be done with a request, and why. Sensitive keys are masked, as
// in the log.
type Explanation struct {
	Method string `json:"method"`
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	Path   string `json:"path"`   // canonical form, in which the path is matched and forwarded
	Client string `json:"client"` // the client's address, behind trusted proxies
	// Generation is the number of the configuration used.
	Generation int64             `json:"generation"`
	Stages     []ExplainedStage  `json:"stages"`
	Route      *ExplainedRoute   `json:"route,omitempty"` // nil if no route matches
	Others     []ExplainedOther  `json:"others"`          // the closest of the other routes
	Keys       []ExplainedKey    `json:"keys"`
	Lists      []ExplainedList   `json:"lists"`
	Limits     []ExplainedLimit  `json:"limits"`
	Returns    []ExplainedReturn `json:"returns,omitempty"` // what a response of the route does to limits of others
	Decision   ExplainedDecision `json:"decision"`
	// Answer is a response by Weir itself: a refusal, a redirect or a fixed response. Upstream is
	// the request that would be forwarded. Exactly one of the two is set.
	Answer   *ExplainedAnswer   `json:"answer,omitempty"`
	Upstream *ExplainedUpstream `json:"upstream,omitempty"`
}

// The results of a stage.
const (
	StagePassed  = "passed"
	StageRefused = "refused"
	StageSkipped = "skipped" // not applicable, or an earlier stage refused the request
)

// An ExplainedStage is the result of one stage.
type ExplainedStage struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	Detail string `json:"detail,omitempty"`
}

// An ExplainedRoute is the matched route.
type ExplainedRoute struct {
	Route
	// Lenient reports that the path of the request matches another route, or none with limits, but
	// that this route applies because a lenient upstream could take the path for one of this route.
	Lenient bool `json:"lenient,omitempty"`
}

// An ExplainedOther is a route that was not selected.
type ExplainedOther struct {
	Name     string `json:"name"`
	Position string `json:"position"`
	// Because has one entry for each matcher that fails: host, method, path, header, query. If none
	// fails, it says that the matched route has precedence.
	Because []string `json:"because"`
}

// An ExplainedKey is a key that the route reads.
type ExplainedKey struct {
	Name string `json:"name"`
	From string `json:"from"`
	// Value is the normalized value, masked if the key is sensitive: "phone=+86138****8000".
	Value string `json:"value,omitempty"`
	// Hash is the name of the key in the log.
	Hash    string `json:"hash,omitempty"`
	Skipped bool   `json:"skipped,omitempty"` // the key is missing, and limits on it do not apply
	Error   string `json:"error,omitempty"`   // why the key cannot be read; the request is refused
}

// An ExplainedList is a list of the route.
type ExplainedList struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Action string `json:"action"`
	Hit    bool   `json:"hit"`
}

// An ExplainedLimit is a limit of the route and its own decision. Redisson is the name for the key.
type ExplainedLimit struct {
	Limit
	Value    string `json:"value,omitempty"`
	Cost     int64  `json:"cost"`
	Price    string `json:"price,omitempty"`     // of a budget: what the request costs, and why
	Ahead    string `json:"ahead,omitempty"`     // for how long a node may take permits ahead
	Penalty  string `json:"penalty,omitempty"`   // the consequence of refusals
	Returned string `json:"returned,omitempty"`  // by which responses of another route permits are returned
	StepUp   string `json:"step_up,omitempty"`   // how a request that it refuses may pass
	Override bool   `json:"override,omitempty"`  // the key has overridden rates
	Plan     string `json:"plan,omitempty"`      // the plan of the key, whose rates apply
	PlanFrom string `json:"plan_from,omitempty"` // where it comes from
	// Asked is false if the limit does not apply; Reason says why.
	Asked   bool              `json:"asked"`
	Reason  string            `json:"reason,omitempty"`
	Allowed bool              `json:"allowed"`
	Windows []ExplainedWindow `json:"windows"`
}

// Facts returns what else there is to say of l and of one of its rates.
func (l ExplainedLimit) Facts(w ExplainedWindow) []string {
	return Holding(
		Fact{l.Price != "", "costs " + l.Price}, Fact{l.Price == "" && l.Cost != 1, fmt.Sprint("costs ", l.Cost)},
		Fact{true, w.Conversion.String()}, Fact{l.Scope != "overall", l.Scope},
		Fact{len(l.Routes) > 0, "one count for " + strings.Join(l.Routes, ", ")}, Fact{l.Override, "override"},
		Fact{l.Plan != "", "plan " + l.Plan + " (" + l.PlanFrom + ")"}, Fact{!l.Exposed, "hidden from clients"},
		Fact{l.Redisson != "", "shared with Redisson"}, Fact{true, l.Penalty}, Fact{true, l.Returned}, Fact{true, l.StepUp},
		Fact{l.Wait != "", "waits up to " + l.Wait},
		Fact{l.Ahead != "", "taken ahead for " + l.Ahead + ": as much of the rate may be refused too early, never refunded"},
	)
}

// An ExplainedReturn is a limit of another route whose permits a response returns (return_on).
type ExplainedReturn struct {
	Route  string   `json:"route"`
	Limit  string   `json:"limit"`
	Key    string   `json:"key"` // of whose value the permits are returned
	Status []string `json:"status"`
}

// An ExplainedWindow is one rate of a limit.
type ExplainedWindow struct {
	Rate      string `json:"rate"`
	Allowed   bool   `json:"allowed"`
	Remaining int64  `json:"remaining"` // before this request
	Most      int64  `json:"most"`
	WaitMS    int64  `json:"wait_ms,omitempty"` // until the request would be allowed
	Banned    bool   `json:"banned,omitempty"`
	Left      string `json:"left,omitempty"` // of a budget: what remains, as money
	// Conversion is why more than the rate may be allowed, of a limit with a conversion.
	Conversion *ConversionStanding `json:"conversion,omitempty"`
}

// Used returns the permits in use before the request.
func (w ExplainedWindow) Used() int64 { return max(w.Most-w.Remaining, 0) }

// An ExplainedDecision is the joint decision of the limits in enforce mode.
type ExplainedDecision struct {
	// Asked is false if no limit applies; Reason says why.
	Asked   bool   `json:"asked"`
	Reason  string `json:"reason,omitempty"`
	Allowed bool   `json:"allowed"`
	// By are the limits that refuse it, and WaitMS is when the answer tells the client to come back.
	By     []string `json:"by,omitempty"`
	WaitMS int64    `json:"wait_ms,omitempty"`
	Store  string   `json:"store"` // memory or redis
	// Slots is the number of cluster slots of the keys of this decision, and so of script calls at most: one for each
	// master that has some of them, or before Redis 7.0 one for each slot. If one refuses, what the others took is returned.
	Slots int `json:"slots"`
	// Repeat reports that the request repeats one that was counted, and is not counted.
	Repeat bool `json:"repeat,omitempty"`
}

// An ExplainedAnswer is a response by Weir itself.
type ExplainedAnswer struct {
	Status int                 `json:"status"`
	Why    string              `json:"why,omitempty"` // the error, as in the log
	Header map[string][]string `json:"header"`
	Body   string              `json:"body,omitempty"`
}

// An ExplainedUpstream is the request that would be forwarded, and its targets.
type ExplainedUpstream struct {
	Name    string   `json:"name"`
	Echo    bool     `json:"echo,omitempty"`
	Targets []string `json:"targets"`
	Balance string   `json:"balance"`
	Method  string   `json:"method"`
	Target  string   `json:"target"` // path and query after rewriting
	Host    string   `json:"host"`
	// Header has all fields that are sent. Set has the names of those that the client did not send,
	// or not with this value. Removed has the names of those that the client sent and that are not
	// forwarded. Each request gets a new request id.
	Header  map[string][]string `json:"header"`
	Set     []string            `json:"set"`
	Removed []string            `json:"removed"`
}

// SetContentType adds the Content-Type of the body if the request has a body and none: JSON if it is JSON,
// otherwise that of a form, as curl does.
func (r *ExplainRequest) SetContentType() {
	if r.Body == "" || len(r.Header["Content-Type"]) > 0 {
		return
	}
	if r.Header == nil {
		r.Header = map[string][]string{}
	}
	r.Header["Content-Type"] = []string{"application/x-www-form-urlencoded"}
	if json.Valid([]byte(r.Body)) {
		r.Header["Content-Type"] = []string{"application/json"}
	}
}
